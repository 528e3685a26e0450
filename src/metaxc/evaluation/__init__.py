"""Evaluation: the zero-shot and generalized protocol, confidence intervals and paired tests."""

from metaxc.evaluation.intervals import bootstrap, paired_bootstrap
from metaxc.evaluation.protocol import (
    CONVENTIONS,
    DEPTH,
    SETTINGS,
    Evaluation,
    Search,
    conventions,
    encoder_search,
    evaluate,
    item_vectors,
    model_search,
)

__all__ = [
    "CONVENTIONS",
    "DEPTH",
    "SETTINGS",
    "Evaluation",
    "Search",
    "bootstrap",
    "conventions",
    "encoder_search",
    "evaluate",
    "item_vectors",
    "model_search",
    "paired_bootstrap",
]
