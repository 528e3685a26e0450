"""Selected classifiers in, meta-classifier out."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metaxc.arrays import Floats

BLOCK = 1_024


class Generator(Protocol):
    """Makes an item's meta-classifier from its embedding and its selected classifiers."""

    kind: ClassVar[str]

    def generate(self, embeddings: Floats, selected: Floats, scores: Floats) -> Floats:
        """(n, dim) float32 meta-classifiers.

        Args:
            embeddings: (n, dim) the items' own embeddings.
            selected: (n, K, dim) classifiers of their neighbours, zeros where padded.
            scores: (n, K) similarity of each neighbour, −inf where padded.
        """

    def weights(self, embeddings: Floats, selected: Floats, scores: Floats) -> Floats:
        """(n, K + 1) float32: the weight of the item's own text, then of each neighbour."""

    def settings(self) -> dict[str, float | int]:
        """The constants, for config.json."""

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The learnt weights, for a tensor file."""


class TorchGenerator(nn.Module):
    """A generator whose forward pass is a torch module; subclasses write `forward` and `weigh`."""

    kind: ClassVar[str] = ""
    learning_rate: ClassVar[float] = 5e-4
    """Of Adam, where no other is asked for; it falls with the number of parameters."""

    def forward(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        """(n, dim) meta-classifiers; same shapes as `Generator.generate`."""
        raise TypeError(f"{type(self).__name__} has no forward pass")

    def weigh(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        """(n, K + 1) weights; same shapes as `Generator.weights`."""
        raise TypeError(f"{type(self).__name__} has no weights")

    def prepare(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> None:
        """Called once before training, with some of the items to come; most need nothing."""

    def settings(self) -> dict[str, float | int]:
        return {}

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        return {name: tensor.detach().numpy() for name, tensor in self.state_dict().items()}

    def load_arrays(self, arrays: dict[str, NDArray[np.float32]]) -> None:
        """Take over weights written by `arrays`."""
        self.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})

    def generate(self, embeddings: Floats, selected: Floats, scores: Floats) -> Floats:
        return self._in_blocks(self.forward, embeddings, selected, scores)

    def weights(self, embeddings: Floats, selected: Floats, scores: Floats) -> Floats:
        return self._in_blocks(self.weigh, embeddings, selected, scores)

    def _in_blocks(
        self, function: Callable[..., Tensor], embeddings: Floats, selected: Floats, scores: Floats
    ) -> Floats:
        self.eval()
        parts = []
        with torch.inference_mode():
            for start in range(0, len(embeddings), BLOCK):
                arrays = (a[start : start + BLOCK] for a in (embeddings, selected, scores))
                parts.append(function(*(torch.from_numpy(np.array(a)) for a in arrays)).numpy())
        if not parts:
            return np.empty((0, embeddings.shape[1]), np.float32)
        return np.concatenate(parts)


def gather(classifiers: Floats, rows: NDArray[np.int64]) -> Floats:
    """(n, K, dim): the classifiers at `rows`, zeros where a row is −1."""
    selected = classifiers[np.maximum(rows, 0)]
    selected[rows < 0] = 0.0
    return selected


def softmax_weights(scores: Tensor, temperature: Tensor | float) -> Tensor:
    """(n, K) softmax of similarity / temperature over the neighbours there are; zeros where there is none."""
    there = torch.isfinite(scores)
    return shares(scores.masked_fill(~there, 0.0) / temperature, there)


def shares(logits: Tensor, there: Tensor) -> Tensor:
    """(n, K) softmax over the neighbours that are there, zeros elsewhere.

    Where there is none, −inf in the place of a very small number would make NaN of every gradient.
    """
    return torch.softmax(logits.masked_fill(~there, -1e4), dim=1) * there
