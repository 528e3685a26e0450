"""From selected classifiers to a meta-classifier: IRENE's transformer, sums, and the training-free combine."""

from __future__ import annotations

from pathlib import Path

import torch

from metaxc.array_checks import AGAIN
from metaxc.artifacts import Arrays, load_arrays, load_json, save_arrays, save_json
from metaxc.errors import ModelError
from metaxc.generators.episode import Episode
from metaxc.generators.gated import Gated
from metaxc.generators.generator import Combine, Generator, Sum, TorchGenerator, WeightedSum, gather
from metaxc.generators.generator_training import GeneratorTraining, TransformerConfig, train_generator
from metaxc.generators.transformer import PostNormTransformer, ResidualTransformer

KINDS: dict[str, type[TorchGenerator]] = {
    kind.kind: kind for kind in (Combine, Gated, Sum, WeightedSum, ResidualTransformer, PostNormTransformer)
}

LEAST_TEMPERATURE, MOST_SETTING = 1e-6, 1e6
"""Settings that a saved generator may have: far beyond all that is chosen, and far from where float32 overflows."""

__all__ = [
    "KINDS",
    "Combine",
    "Episode",
    "Gated",
    "Generator",
    "GeneratorTraining",
    "PostNormTransformer",
    "ResidualTransformer",
    "Sum",
    "TorchGenerator",
    "TransformerConfig",
    "WeightedSum",
    "gather",
    "load_generator",
    "save_generator",
    "train_generator",
]


def save_generator(folder: Path, generator: TorchGenerator) -> None:
    """Write `generator.json` and `generator.safetensors`."""
    save_json(folder / "generator.json", {"kind": generator.kind, "settings": generator.settings()})
    save_arrays(folder / "generator.safetensors", generator.arrays())


def load_generator(folder: Path) -> TorchGenerator:
    """Read what `save_generator` wrote."""
    facts, arrays = load_json(folder / "generator.json"), load_arrays(folder / "generator.safetensors")
    try:
        kind, settings = KINDS[facts["kind"]], facts["settings"]
        _check_settings(kind, settings, arrays)
        generator = kind(**settings)
        generator.load_arrays(arrays)
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ModelError(
            "The generator's arrays do not match its configuration",
            got=f"{str(facts)[:200]}: {error}",
            fix=AGAIN,
        ) from error
    return generator


def _check_settings(kind: type[TorchGenerator], settings: dict[str, float], arrays: Arrays) -> None:
    """Raise a `ValueError` unless settings and arrays fit; nothing is allocated before that is known."""
    for name, value in settings.items():
        least = LEAST_TEMPERATURE if name == "temperature" else 0
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not least <= value <= MOST_SETTING
        ):
            raise ValueError(f"{name} is not a number from {least:g} to {MOST_SETTING:g}")
    if settings.get("depth", 0) > len(arrays):  # each layer has several arrays
        raise ValueError(f"{len(arrays)} arrays for {settings['depth']} layers")
    with torch.device("meta"):  # shapes without memory
        expected = {name: tuple(tensor.shape) for name, tensor in kind(**settings).state_dict().items()}
    found = {name: array.shape for name, array in arrays.items()}
    if found != expected:
        wrong = sorted(set(found.items()) ^ set(expected.items()))
        raise ValueError(f"{wrong[0][0]} is missing, or has another shape")
