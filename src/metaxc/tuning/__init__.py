"""Constants chosen on pseudo-novel observed items, never on test: folds, shortlists, grids, choices."""

from metaxc.tuning.calibration import CalibrationChoice, choose_calibration
from metaxc.tuning.choices import (
    Candidate,
    ModelParts,
    choose_constants,
    compare_generators,
    default_constants,
    encoder_quality,
    fit_fold,
    learn_fold_encoder,
)
from metaxc.tuning.constants import Constants
from metaxc.tuning.fitted_folds import FittedFold, TuningFold, ValidationQueries
from metaxc.tuning.grids import CombineChoice, tune_combine, tune_own_classifiers, tune_query_expansion
from metaxc.tuning.qualities import MixedQuality, Quality, Relevance, ranking_quality
from metaxc.tuning.shortlists import ENCODER_ALONE, FoldItems, Setting, Shortlist

__all__ = [
    "ENCODER_ALONE",
    "CalibrationChoice",
    "Candidate",
    "CombineChoice",
    "Constants",
    "FittedFold",
    "FoldItems",
    "MixedQuality",
    "ModelParts",
    "Quality",
    "Relevance",
    "Setting",
    "Shortlist",
    "TuningFold",
    "ValidationQueries",
    "choose_calibration",
    "choose_constants",
    "compare_generators",
    "default_constants",
    "encoder_quality",
    "fit_fold",
    "learn_fold_encoder",
    "ranking_quality",
    "tune_combine",
    "tune_own_classifiers",
    "tune_query_expansion",
]
