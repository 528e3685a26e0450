"""How good is a model, and how sure is that: the protocol, its intervals and paired tests."""

from metaxc.evaluation.intervals import bootstrap, paired_bootstrap
from metaxc.evaluation.protocol import CONVENTIONS, DEPTH, SETTINGS, Evaluation, Search, conventions, evaluate
from metaxc.evaluation.searches import encoder_search, model_search, vectors_for

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
    "model_search",
    "paired_bootstrap",
    "vectors_for",
]
