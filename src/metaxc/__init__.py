"""metaxc: meta-classifiers for items nobody has clicked yet.

These are the names that most programs need; each is imported when it is first used, so importing metaxc is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metaxc.catalog import Catalog, NewItem
    from metaxc.data import Dataset, read_folder, split, write_folder
    from metaxc.emmett import Emmett
    from metaxc.encoders import EmbeddingCache, Pretrained, Vectors
    from metaxc.errors import MetaxcError
    from metaxc.evaluation import evaluate
    from metaxc.irene import Irene, IreneConfig

__version__ = "0.1.0"

_MODULES = {
    "Catalog": "metaxc.catalog",
    "Dataset": "metaxc.data",
    "EmbeddingCache": "metaxc.encoders",
    "Emmett": "metaxc.emmett",
    "Irene": "metaxc.irene",
    "IreneConfig": "metaxc.irene",
    "MetaxcError": "metaxc.errors",
    "NewItem": "metaxc.catalog",
    "Pretrained": "metaxc.encoders",
    "Vectors": "metaxc.encoders",
    "evaluate": "metaxc.evaluation",
    "read_folder": "metaxc.data",
    "split": "metaxc.data",
    "write_folder": "metaxc.data",
}

__all__ = [
    "Catalog",
    "Dataset",
    "EmbeddingCache",
    "Emmett",
    "Irene",
    "IreneConfig",
    "MetaxcError",
    "NewItem",
    "Pretrained",
    "Vectors",
    "evaluate",
    "read_folder",
    "split",
    "write_folder",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'metaxc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
