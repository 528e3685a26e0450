"""The generalization theory of the method: computed for a trained model, and checked against measurements."""

from metaxc.research.theory.account import Account, Assumed, account
from metaxc.research.theory.experiment import run_study
from metaxc.research.theory.plan import Study
from metaxc.research.theory.verdicts import Verdict, verdicts

__all__ = ["Account", "Assumed", "Study", "Verdict", "account", "run_study", "verdicts"]
