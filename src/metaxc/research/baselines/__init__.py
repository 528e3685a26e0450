"""Baselines: what a user could try instead, behind one interface (`baseline`).

`BASELINES` lists them by their names in tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from metaxc.research.baselines.baseline import Baseline, Scorer, VectorScorer, scorer_search
from metaxc.research.baselines.embedding_baselines import ESZSL, NeighbourKernel, Siamese
from metaxc.research.baselines.emmett_baselines import DEXA, NGAME, Retrained
from metaxc.research.baselines.rank_fusion import RRF_CONSTANT, fuse_rankings, fuse_searches
from metaxc.research.baselines.semsup import SemSupXC
from metaxc.research.baselines.term_matching import BM25, TfIdf
from metaxc.research.baselines.zestxml import ZestXML

__all__ = [
    "BASELINES",
    "BM25",
    "DEXA",
    "ESZSL",
    "NGAME",
    "RRF_CONSTANT",
    "Baseline",
    "BaselineEntry",
    "NeighbourKernel",
    "Retrained",
    "Scorer",
    "SemSupXC",
    "Siamese",
    "TfIdf",
    "VectorScorer",
    "ZestXML",
    "fuse_rankings",
    "fuse_searches",
    "scorer_search",
]


@dataclass(frozen=True)
class BaselineEntry:
    """A baseline of the registry.

    Args:
        kind: The class.
        encoder: The encoder that it needs: none, any, or a `metaxc.encoders.Pretrained` (for its tokens).
    """

    kind: Callable[..., Baseline]
    encoder: Literal["none", "any", "pretrained"]

    def build(self, encoder: Any = None) -> Baseline:
        """The baseline with its default settings; an encoder that it does not need is ignored."""
        return self.kind() if self.encoder == "none" else self.kind(encoder)


BASELINES: dict[str, BaselineEntry] = {
    "TF-IDF": BaselineEntry(TfIdf, "none"),
    "BM25": BaselineEntry(BM25, "none"),
    "Siamese": BaselineEntry(Siamese, "any"),
    "NGAME": BaselineEntry(NGAME, "any"),
    "DEXA": BaselineEntry(DEXA, "any"),
    "ESZSL": BaselineEntry(ESZSL, "any"),
    "Neighbour kernel": BaselineEntry(NeighbourKernel, "any"),
    "ZestXML": BaselineEntry(ZestXML, "none"),
    "SemSup-XC": BaselineEntry(SemSupXC, "pretrained"),
}
"""By `Baseline.name`. `Retrained` is not included: it takes a configuration and the clicks to reveal."""
