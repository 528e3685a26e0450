"""The names of the backends, what each is, and what has to be installed for it."""

from __future__ import annotations

import importlib.util
from importlib.metadata import version
from typing import Literal

from metaxc.artifacts import json_digest

Backend = Literal["auto", "torch", "onnx", "onnx-int8"]

BACKENDS: tuple[Backend, ...] = ("auto", "torch", "onnx", "onnx-int8")

PACKAGES = ("onnx", "onnxruntime")
INSTALL = "pip install 'metaxc[fast]'"

SETTINGS = {
    "onnx": "float32, fused attention",
    "onnx-int8": "uint8 activations scaled per token, int8 weights per output channel, attention in float32",
}
"""What a backend computes, in words that change when it does: they are part of the encoder's fingerprint. What a
kernel of one CPU or another rounds differently in the last digits is not: a model moves between machines."""


def named_by(weights: str, backend: str) -> str:
    """The fingerprint of an encoder: of its weights, and of what computes with them. Torch adds nothing, so that
    models from before there was a choice keep their fingerprint."""
    return weights if backend == "torch" else json_digest([weights, backend, SETTINGS[backend]])


def missing() -> list[str]:
    """The packages that ONNX needs and that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def versions() -> list[str]:
    """What else the choice of a backend rests on."""
    return [f"{name} {'missing' if name in missing() else version(name)}" for name in PACKAGES] + list(
        SETTINGS.values()
    )
