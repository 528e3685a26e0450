"""What every generator is, and those that are weighted sums: the training-free combine, and the paper's two ablations.

The residual transformer starts from `Combine`: z plus the neighbours' classifiers, weighted by a softmax of their
similarity. Its two constants are chosen on pseudo-novel items, not trained.
"""

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
        """The trained weights, for a tensor file."""


class TorchGenerator(nn.Module):
    """A generator that is a torch module; subclasses define `weigh`, and `forward` where it is not a weighted sum."""

    kind: ClassVar[str] = ""
    learning_rate: ClassVar[float] = 5e-4
    """Adam's learning rate unless another is configured; smaller for generators with more parameters."""

    def forward(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        """(n, dim) meta-classifiers, by default sums weighted by `weigh`; same shapes as `Generator.generate`."""
        weights = self.weigh(embeddings, selected, scores)
        return weights[:, :1] * embeddings + torch.einsum("nk,nkd->nd", weights[:, 1:], selected)

    def weigh(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        """(n, K + 1) weights; same shapes as `Generator.weights`."""
        raise TypeError(f"{type(self).__name__} has no weights")

    def prepare(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> None:
        """Called once before training with a sample of the items; most generators need nothing."""

    def settings(self) -> dict[str, float | int]:
        return {}

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        return {name: tensor.detach().numpy() for name, tensor in self.state_dict().items()}

    def load_arrays(self, arrays: dict[str, NDArray[np.float32]]) -> None:
        """Load weights that `arrays` returned."""
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
    """(n, K) softmax of similarity / temperature over the neighbours that are present; zeros elsewhere."""
    present = torch.isfinite(scores)
    return masked_softmax(scores.masked_fill(~present, 0.0) / temperature, present)


def combine_weights(scores: Tensor, strength: Tensor | float, temperature: Tensor | float) -> Tensor:
    """(n, K + 1) weights of the combine: 1 for the item's own text, then `strength` shared out among its neighbours."""
    neighbours = strength * softmax_weights(scores, temperature)
    return torch.cat([scores.new_ones(len(scores), 1), neighbours], dim=1)


def masked_softmax(logits: Tensor, present: Tensor) -> Tensor:
    """(n, K) softmax over the neighbours that are present, zeros elsewhere.

    For an item without neighbours, −inf instead of a very small number would turn every gradient into NaN.
    """
    return torch.softmax(logits.masked_fill(~present, -1e4), dim=1) * present


class Combine(TorchGenerator):
    """u = z + strength · Σ softmax(similarity / temperature) · w.

    Args:
        strength: Weight of the neighbours relative to the item's own text.
        temperature: Temperature of the softmax over their similarities.
    """

    kind: ClassVar[str] = "combine"

    def __init__(self, strength: float = 0.5, temperature: float = 0.1):
        super().__init__()
        self.strength, self.temperature = strength, temperature

    def __repr__(self) -> str:
        return f"Combine(strength={self.strength:g}, temperature={self.temperature:g})"

    def settings(self) -> dict[str, float | int]:
        return {"strength": self.strength, "temperature": self.temperature}

    def weigh(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        return combine_weights(scores, self.strength, self.temperature)


class Sum(TorchGenerator):
    """u = z + w₁ + … + w_K: the paper's plain summation."""

    kind: ClassVar[str] = "sum"

    def __repr__(self) -> str:
        return "Sum()"

    def weigh(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        return torch.cat([scores.new_ones(len(scores), 1), torch.isfinite(scores).float()], dim=1)


class WeightedSum(TorchGenerator):
    """u = c₀z + c₁w₁ + … + c_K w_K with learnt c: the paper's weighted summation.

    Args:
        neighbours: K.
    """

    kind: ClassVar[str] = "weighted_sum"
    learning_rate: ClassVar[float] = 5e-3

    def __init__(self, neighbours: int):
        super().__init__()
        start = torch.full((neighbours + 1,), 1.0 / neighbours)
        start[0] = 1.0
        self.c = nn.Parameter(start)

    def __repr__(self) -> str:
        return f"WeightedSum({', '.join(f'{c:.2f}' for c in self.c.tolist())})"

    def settings(self) -> dict[str, float | int]:
        return {"neighbours": len(self.c) - 1}

    def weigh(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        present = torch.cat([scores.new_ones(len(scores), 1), torch.isfinite(scores).float()], dim=1)
        return present * self.c
