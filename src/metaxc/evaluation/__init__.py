"""Evaluation: the zero-shot and generalized protocol, metrics by kind of item and by exposure, intervals, paired
tests."""

from metaxc.evaluation.by_kind import KINDS, ByKind, ClickSlice, Figure, evaluate_by_kind
from metaxc.evaluation.exposure import (
    PropensityComparison,
    compare_propensity,
    evaluate_exposures,
    exposure_curve,
)
from metaxc.evaluation.intervals import PairedDifference, bootstrap, paired_bootstrap, paired_interval
from metaxc.evaluation.overlap import Overlap, OverlapError, check_overlap, find_overlap
from metaxc.evaluation.paired import PairedValues, paired_intervals, paired_values
from metaxc.evaluation.protocol import (
    CONVENTIONS,
    SETTINGS,
    Evaluation,
    conventions,
    evaluate,
    evaluate_model,
)
from metaxc.evaluation.searches import (
    BARE_ENCODER,
    DEPTH,
    Search,
    encoder_baselines,
    encoder_search,
    item_vectors,
    model_search,
)

__all__ = [
    "BARE_ENCODER",
    "CONVENTIONS",
    "DEPTH",
    "KINDS",
    "SETTINGS",
    "ByKind",
    "ClickSlice",
    "Evaluation",
    "Figure",
    "Overlap",
    "OverlapError",
    "PairedDifference",
    "PairedValues",
    "PropensityComparison",
    "Search",
    "bootstrap",
    "check_overlap",
    "compare_propensity",
    "conventions",
    "encoder_baselines",
    "encoder_search",
    "evaluate",
    "evaluate_by_kind",
    "evaluate_exposures",
    "evaluate_model",
    "exposure_curve",
    "find_overlap",
    "item_vectors",
    "model_search",
    "paired_bootstrap",
    "paired_interval",
    "paired_intervals",
    "paired_values",
]
