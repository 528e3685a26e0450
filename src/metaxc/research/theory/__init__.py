"""The generalization theory of the method: bounds of a trained model, and a study that measures whether they hold."""

from metaxc.research.theory.model_bounds import BoundAssumptions, ModelBounds, compute_bounds
from metaxc.research.theory.study import Study
from metaxc.research.theory.study_results import Verdict, reach_verdicts
from metaxc.research.theory.study_training import run_study

__all__ = [
    "BoundAssumptions",
    "ModelBounds",
    "Study",
    "Verdict",
    "compute_bounds",
    "reach_verdicts",
    "run_study",
]
