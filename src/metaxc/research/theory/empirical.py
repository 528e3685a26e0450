"""Estimates of the empirical Rademacher complexity: how well can models within a norm bound fit random signs?

For each draw of signs σ (one per query–item pair) this searches for the model of the class that fits them best. The
class is that of the lemma: a mixture of an item's embedding and its K selected classifiers, followed by one linear
layer M,

    f(x, z) = ⟨x, M h(z)⟩,  h(z) = Σ α_k t_k,  ‖M‖_F ≤ m

For given mixtures the best M is known in closed form: with P = Xᵀσ it is proportional to P·H, and the value reached is
m · ‖P·H‖_F / (N·L). Gradient ascent is needed only for the parameters of the mixtures: attention A with
α_k ∝ exp(t₀ᵀ A t_k), free weights per item, and the classifiers when they are trainable. Ascent may miss the supremum,
so the estimate is a lower one.

The ascent is projected: after each step the parameters return to their norm bounds, at a constant rate, and the best
value on the way counts. It is not a training run, so it does not use `metaxc.training_loop`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from metaxc.arrays import Floats, Rows
from metaxc.errors import ConfigError

Mixing = Literal["mean", "attention", "free"]

LEARNING_RATE = 0.1
"""Adam's rate in the ascent."""


@dataclass(frozen=True)
class Estimate:
    """A mean over draws of signs, with its standard error."""

    mean: float
    standard_error: float
    draws: int


@dataclass(frozen=True)
class MixtureInputs:
    """The vectors that items are mixtures of.

    Args:
        embeddings: (items, dim) the items' own embeddings.
        classifiers: (observed, dim) the classifiers.
        rows: (items, K) the classifiers that each item selects.
    """

    embeddings: Floats
    classifiers: Floats
    rows: Rows


def draw_signs(queries: int, items: int, random: np.random.Generator) -> Floats:
    """(queries, items) of −1 and 1, each with probability ½."""
    return random.choice(np.array([-1, 1], dtype=np.float32), size=(queries, items))


def estimate_free_vectors(
    queries: Floats, items: int, radius: float, *, draws: int = 20, seed: int = 0
) -> Estimate:
    """The complexity of one free vector per item: plain extreme classifiers.

    The supremum is exact, radius · Σ_l ‖Σ_i σ_il x_i‖ / (N·L).

    Args:
        queries: (queries, dim).
        items: L.
        radius: U, the largest norm of a vector.
        draws: Number of sign matrices.
        seed: Seed of the signs.
    """
    random = np.random.default_rng(seed)
    values = []
    for _ in range(draws):
        signed_sums = queries.T @ draw_signs(len(queries), items, random)
        values.append(radius * float(np.linalg.norm(signed_sums, axis=0).sum()) / (len(queries) * items))
    return _summarise(values)


def estimate_mixtures(
    queries: Floats,
    inputs: MixtureInputs,
    m: float,
    mixing: Mixing = "attention",
    *,
    attention: float = 10.0,
    train_classifiers: float | None = None,
    draws: int = 10,
    steps: int = 40,
    starts: int = 3,
    seed: int = 0,
) -> Estimate:
    """The complexity of mixtures followed by one linear layer.

    Args:
        queries: (queries, dim).
        inputs: The vectors that items are mixtures of.
        m: Upper bound on ‖M‖_F.
        mixing: `mean` (equal, fixed weights), `attention`, or `free` (weights of its own for each item).
        attention: Upper bound on ‖A‖_F.
        train_classifiers: Upper bound on a classifier's norm when classifiers are trainable; None freezes them.
        draws: Number of sign matrices.
        steps: Steps of each ascent.
        starts: Ascents per draw, the first from equal weights, the others from random ones; the best one counts.
        seed: Seed of the signs and the random starts.
    """
    random = np.random.default_rng(seed)
    values = []
    for _ in range(draws):
        signed_sums = torch.from_numpy(queries.T @ draw_signs(len(queries), len(inputs.embeddings), random))
        reached = []
        for start in range(starts):
            mixtures = _BoundedMixtures(inputs, mixing, attention, train_classifiers)
            if start:
                mixtures.randomise(torch.Generator().manual_seed(seed + start))
            reached.append(_ascend(mixtures, signed_sums, steps))
        values.append(m * max(reached) / (len(queries) * len(inputs.embeddings)))
    return _summarise(values)


class _BoundedMixtures(nn.Module):
    """The parameters of the mixtures, kept within their norm bounds."""

    def __init__(self, inputs: MixtureInputs, mixing: Mixing, attention: float, radius: float | None):
        super().__init__()
        dim, k = inputs.embeddings.shape[1], inputs.rows.shape[1]
        self.bounds = (attention, radius)
        self.embeddings = torch.from_numpy(inputs.embeddings)
        self.rows = torch.from_numpy(inputs.rows)
        self.classifiers = nn.Parameter(
            torch.from_numpy(np.array(inputs.classifiers)), requires_grad=radius is not None
        )
        self.attention = nn.Parameter(torch.zeros(dim, dim), requires_grad=mixing == "attention")
        self.logits = nn.Parameter(torch.zeros(len(inputs.embeddings), k + 1), requires_grad=mixing == "free")

    def forward(self, signed_sums: Tensor) -> Tensor:
        """‖P·H‖_F for P of shape (dim, items)."""
        vectors = torch.cat([self.embeddings.unsqueeze(1), self.classifiers[self.rows]], dim=1)
        attended = torch.einsum("ld,de,lke->lk", self.embeddings, self.attention, vectors)
        weights = torch.softmax(attended + self.logits, dim=1)
        norm: Tensor = torch.linalg.norm(signed_sums @ torch.einsum("lk,lkd->ld", weights, vectors))
        return norm

    @torch.no_grad()
    def randomise(self, random: torch.Generator) -> None:
        """Start from random mixing weights."""
        for parameter in (self.attention, self.logits):
            if parameter.requires_grad:
                parameter.normal_(generator=random)
        self.project()

    @torch.no_grad()
    def project(self) -> None:
        """Scale the parameters back into their norm bounds."""
        attention, radius = self.bounds
        self.attention.mul_(min(1.0, attention / max(float(self.attention.norm()), 1e-12)))
        if radius is not None:
            norms = self.classifiers.norm(dim=1, keepdim=True)
            self.classifiers.mul_((radius / norms.clamp(min=1e-12)).clamp(max=1.0))


def _ascend(mixtures: _BoundedMixtures, signed_sums: Tensor, steps: int) -> float:
    """The largest value met during projected gradient ascent."""
    trainable = [parameter for parameter in mixtures.parameters() if parameter.requires_grad]
    with torch.no_grad():
        best = float(mixtures(signed_sums))
    if not trainable:
        return best
    optimizer = torch.optim.Adam(trainable, lr=LEARNING_RATE, maximize=True)
    for _ in range(steps):
        optimizer.zero_grad()
        mixtures(signed_sums).backward()
        optimizer.step()
        mixtures.project()
        with torch.no_grad():
            best = max(best, float(mixtures(signed_sums)))
    return best


def _summarise(values: list[float]) -> Estimate:
    if len(values) < 2:
        raise ConfigError("A standard error needs several draws", got=len(values), expected="2 or more")
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1)) / sqrt(len(values)), len(values))
