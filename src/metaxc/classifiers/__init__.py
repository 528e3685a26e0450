"""Classifiers of the observed items: closed-form or trained, one per item, frozen afterwards."""

from metaxc.classifiers.classifiers import Classifiers, centroid, ridge
from metaxc.classifiers.few_shot import FewShotFitter, Revealed, RevealedQueries
from metaxc.classifiers.one_vs_all import OneVsAllConfig, one_vs_all
from metaxc.classifiers.query_layers import QueryTransformer

__all__ = [
    "Classifiers",
    "FewShotFitter",
    "OneVsAllConfig",
    "QueryTransformer",
    "Revealed",
    "RevealedQueries",
    "centroid",
    "one_vs_all",
    "ridge",
]
