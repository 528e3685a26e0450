"""From selected classifiers to a meta-classifier: IRENE's transformer, sums, and the training-free combine."""

from __future__ import annotations

from pathlib import Path

from metaxc.artifacts import load_arrays, load_json, save_arrays, save_json
from metaxc.errors import ModelError
from metaxc.generators.gated import Gated
from metaxc.generators.generator import Combine, Generator, Sum, TorchGenerator, WeightedSum, gather
from metaxc.generators.generator_training import Episode, GeneratorTraining, train_generator
from metaxc.generators.transformer import PostNormTransformer, ResidualTransformer

KINDS: dict[str, type[TorchGenerator]] = {
    kind.kind: kind for kind in (Combine, Gated, Sum, WeightedSum, ResidualTransformer, PostNormTransformer)
}

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
        generator = KINDS[facts["kind"]](**facts["settings"])
        generator.load_arrays(arrays)
    except (KeyError, TypeError, RuntimeError) as error:
        raise ModelError(
            "The generator's arrays do not match its configuration", got=f"{facts}: {error}"
        ) from error
    return generator
