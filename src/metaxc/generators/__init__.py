"""Selected classifiers to a meta-classifier: IRENE's transformer, sums, and the training-free combine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metaxc.errors import ModelError
from metaxc.generators.base import Generator, TorchGenerator, gather
from metaxc.generators.sums import Combine, Sum, WeightedSum
from metaxc.generators.training import GeneratorTraining, train_generator
from metaxc.generators.transformer import PostNormTransformer, ResidualTransformer

KINDS: dict[str, type[TorchGenerator]] = {
    kind.kind: kind for kind in (Combine, Sum, WeightedSum, ResidualTransformer, PostNormTransformer)
}

__all__ = [
    "KINDS",
    "Combine",
    "Generator",
    "GeneratorTraining",
    "PostNormTransformer",
    "ResidualTransformer",
    "Sum",
    "TorchGenerator",
    "WeightedSum",
    "gather",
    "load_generator",
    "train_generator",
]


def load_generator(
    kind: str, settings: dict[str, float | int], arrays: dict[str, NDArray[np.float32]]
) -> TorchGenerator:
    """The generator that `settings()` and `arrays()` described."""
    try:
        generator = KINDS[kind](**settings)
        generator.load_arrays(arrays)
    except (KeyError, TypeError, RuntimeError) as error:
        raise ModelError("The generator does not fit its configuration", got=f"{kind}: {error}") from error
    return generator
