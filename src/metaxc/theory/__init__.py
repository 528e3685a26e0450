"""The generalization theory of the method: computed for a trained model, and checked against measurements."""

from metaxc.theory.account import Account, Assumed, account
from metaxc.theory.experiment import run_study
from metaxc.theory.plan import Study
from metaxc.theory.verdicts import Verdict, verdicts

__all__ = ["Account", "Assumed", "Study", "Verdict", "account", "run_study", "verdicts"]
