"""Generators that are weighted sums: the training-free combine, and the paper's two ablations.

The residual transformer starts from `Combine`: z plus the neighbours' classifiers, weighted by a softmax of their
similarity. Its two constants are chosen on pseudo-novel items, not trained.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from metaxc.generators.generator import TorchGenerator, combine_weights


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
        return torch.cat([torch.ones(len(embeddings), 1), torch.isfinite(scores).float()], dim=1)


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
        present = torch.cat([torch.ones(len(embeddings), 1), torch.isfinite(scores).float()], dim=1)
        return present * self.c
