"""What a user would try instead: each a short file behind one interface (`base`).

`BASELINES` lists them by the name that reports use. Nothing is imported before it is made: scikit-learn and bm25s, the
extra `metaxc[bench]`, are needed only by those that use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from metaxc.baselines.base import Baseline, Dense, Scorer, search_by
    from metaxc.baselines.bm25 import BM25
    from metaxc.baselines.dexa import DEXA
    from metaxc.baselines.eszsl import ESZSL
    from metaxc.baselines.kernel import NeighbourKernel
    from metaxc.baselines.retrained import Retrained
    from metaxc.baselines.semsup import SemSupXC
    from metaxc.baselines.served import NGAME
    from metaxc.baselines.siamese import Siamese
    from metaxc.baselines.tfidf import TfIdf
    from metaxc.baselines.zestxml import ZestXML

_HOME = {
    "BM25": "bm25",
    "Baseline": "base",
    "DEXA": "dexa",
    "Dense": "base",
    "ESZSL": "eszsl",
    "NGAME": "served",
    "NeighbourKernel": "kernel",
    "Retrained": "retrained",
    "Scorer": "base",
    "SemSupXC": "semsup",
    "Siamese": "siamese",
    "TfIdf": "tfidf",
    "ZestXML": "zestxml",
    "search_by": "base",
}

__all__ = [
    "BASELINES",
    "BM25",
    "DEXA",
    "ESZSL",
    "NGAME",
    "Baseline",
    "Dense",
    "Entry",
    "NeighbourKernel",
    "Retrained",
    "Scorer",
    "SemSupXC",
    "Siamese",
    "TfIdf",
    "ZestXML",
    "search_by",
]


@dataclass(frozen=True)
class Entry:
    """A baseline that can be made by name.

    Args:
        kind: Its class, one of this package's names.
        needs: What `make` takes: nothing, any encoder, or a `metaxc.encoders.Pretrained` (tokens are read too).
    """

    kind: str
    needs: Literal["nothing", "encoder", "pretrained"]

    def make(self, encoder: Any = None) -> Baseline:
        """The baseline with its default settings; an encoder that it does not need is not looked at."""
        kind = __getattr__(self.kind)
        made: Baseline = kind() if self.needs == "nothing" else kind(encoder)
        return made


BASELINES: dict[str, Entry] = {
    "TF-IDF": Entry("TfIdf", "nothing"),
    "BM25": Entry("BM25", "nothing"),
    "Siamese": Entry("Siamese", "encoder"),
    "NGAME": Entry("NGAME", "encoder"),
    "DEXA": Entry("DEXA", "encoder"),
    "ESZSL": Entry("ESZSL", "encoder"),
    "Neighbour kernel": Entry("NeighbourKernel", "encoder"),
    "ZestXML": Entry("ZestXML", "nothing"),
    "SemSup-XC": Entry("SemSupXC", "pretrained"),
}
"""By `Baseline.name`. `Retrained` is not here: it takes a recipe and the clicks to reveal."""


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"metaxc.baselines.{_HOME[name]}"), name)
    raise AttributeError(f"module 'metaxc.baselines' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
