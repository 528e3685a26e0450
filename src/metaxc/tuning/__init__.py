"""Constants chosen on pseudo-novel observed items, never on test: folds, grids, choices."""

from metaxc.tuning.choices import Constants, ModelParts, choose_constants, fit_fold
from metaxc.tuning.fitted_folds import FittedFold, Quality, TuningFold, ValidationQueries, ranking_quality
from metaxc.tuning.grids import (
    CombineChoice,
    tune_calibration,
    tune_combine,
    tune_own_classifiers,
    tune_query_expansion,
)

__all__ = [
    "CombineChoice",
    "Constants",
    "FittedFold",
    "ModelParts",
    "Quality",
    "TuningFold",
    "ValidationQueries",
    "choose_constants",
    "fit_fold",
    "ranking_quality",
    "tune_calibration",
    "tune_combine",
    "tune_own_classifiers",
    "tune_query_expansion",
]
