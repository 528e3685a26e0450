"""What a user would try instead: each a short file behind one interface (`base`).

`BASELINES` lists them by the name that reports use. Nothing is imported before it is made: scikit-learn and bm25s, the
extra `metaxc[bench]`, are needed only by those that use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from metaxc.research.baselines.baseline import Baseline, Dense, Scorer, scorer_search
    from metaxc.research.baselines.bm25 import BM25
    from metaxc.research.baselines.dexa import DEXA
    from metaxc.research.baselines.eszsl import ESZSL
    from metaxc.research.baselines.kernel import NeighbourKernel
    from metaxc.research.baselines.retrained import Retrained
    from metaxc.research.baselines.semsup import SemSupXC
    from metaxc.research.baselines.served import NGAME
    from metaxc.research.baselines.siamese import Siamese
    from metaxc.research.baselines.tfidf import TfIdf
    from metaxc.research.baselines.zestxml import ZestXML

_HOME = {
    "BM25": "bm25",
    "Baseline": "baseline",
    "DEXA": "dexa",
    "Dense": "baseline",
    "ESZSL": "eszsl",
    "NGAME": "served",
    "NeighbourKernel": "kernel",
    "Retrained": "retrained",
    "Scorer": "baseline",
    "SemSupXC": "semsup",
    "Siamese": "siamese",
    "TfIdf": "tfidf",
    "ZestXML": "zestxml",
    "scorer_search": "baseline",
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
    "scorer_search",
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
        return getattr(import_module(f"metaxc.research.baselines.{_HOME[name]}"), name)
    raise AttributeError(f"module 'metaxc.research.baselines' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
