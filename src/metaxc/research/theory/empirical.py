"""The empirical Rademacher complexity, estimated: how well do models of a norm ball follow random signs?

For each draw of signs σ (one per query–item pair) the model of the class that follows them best is looked for. The
class is the one of the lemma: a mixture of an item's embedding and its K selected classifiers, then one linear layer M,

    f(x, z) = ⟨x, M h(z)⟩,  h(z) = Σ α_k t_k,  ‖M‖_F ≤ m

For given mixtures the best M is known: with P = Xᵀσ it is proportional to P·H, and its mean is m · ‖P·H‖_F / (N·L).
So ascent is needed only for what shapes the mixtures: attention A of α_k ∝ exp(t₀ᵀ A t_k), the weights of each item
by themselves, and the classifiers when they are trainable. Ascent finds the supremum at most: the estimate is from
below.
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
"""Of Adam in the ascent."""


@dataclass(frozen=True)
class Estimate:
    """A mean over draws of signs, and its standard error."""

    mean: float
    standard_error: float
    draws: int


@dataclass(frozen=True)
class Tokens:
    """What items are mixed of.

    Args:
        own: (items, dim) their embeddings.
        bank: (observed, dim) the classifiers.
        rows: (items, K) which of them each item selects.
    """

    own: Floats
    bank: Floats
    rows: Rows


def signs_of(queries: int, items: int, random: np.random.Generator) -> Floats:
    """(queries, items) of −1 and 1, each with probability ½."""
    return random.choice(np.array([-1, 1], dtype=np.float32), size=(queries, items))


def of_free_vectors(
    queries: Floats, items: int, radius: float, *, draws: int = 20, seed: int = 0
) -> Estimate:
    """A vector per item, of norm `radius` at most: plain extreme classifiers. The supremum is exact,
    radius · Σ_l ‖Σ_i σ_il x_i‖ / (N·L).

    Args:
        queries: (queries, dim).
        items: L.
        radius: U.
        draws: Of signs.
        seed: Of the signs.
    """
    random = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        along = queries.T @ signs_of(len(queries), items, random)
        found.append(radius * float(np.linalg.norm(along, axis=0).sum()) / (len(queries) * items))
    return _estimate(found)


def of_mixtures(
    queries: Floats,
    tokens: Tokens,
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
    """Mixtures and one linear layer.

    Args:
        queries: (queries, dim).
        tokens: What items are mixed of.
        m: The most that ‖M‖_F may be.
        mixing: `mean` (fixed: all alike), `attention`, or `free` (each item by itself).
        attention: The most that ‖A‖_F may be.
        train_classifiers: The most that a classifier's norm may be, when they are trained too; None freezes them.
        draws: Of signs.
        steps: Of each ascent.
        starts: Ascents per draw, the first from even weights, the others from random ones; the highest counts.
        seed: Of the signs and the starts.
    """
    random = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        along = torch.from_numpy(queries.T @ signs_of(len(queries), len(tokens.own), random))
        reached = []
        for start in range(starts):
            ball = _Ball(tokens, mixing, attention, train_classifiers)
            if start:
                ball.scatter(torch.Generator().manual_seed(seed + start))
            reached.append(_ascend(ball, along, steps))
        found.append(m * max(reached) / (len(queries) * len(tokens.own)))
    return _estimate(found)


class _Ball(nn.Module):
    """What shapes the mixtures, within its norms."""

    def __init__(self, tokens: Tokens, mixing: Mixing, attention: float, radius: float | None):
        super().__init__()
        dim, k = tokens.own.shape[1], tokens.rows.shape[1]
        self.radii = (attention, radius)
        self.own = torch.from_numpy(tokens.own)
        self.rows = torch.from_numpy(tokens.rows)
        self.bank = nn.Parameter(torch.from_numpy(np.array(tokens.bank)), requires_grad=radius is not None)
        self.attention = nn.Parameter(torch.zeros(dim, dim), requires_grad=mixing == "attention")
        self.logits = nn.Parameter(torch.zeros(len(tokens.own), k + 1), requires_grad=mixing == "free")

    def forward(self, along: Tensor) -> Tensor:
        """‖P·H‖_F, for P of shape (dim, items)."""
        tokens = torch.cat([self.own.unsqueeze(1), self.bank[self.rows]], dim=1)
        attended = torch.einsum("ld,de,lke->lk", self.own, self.attention, tokens)
        weights = torch.softmax(attended + self.logits, dim=1)
        reached: Tensor = torch.linalg.norm(along @ torch.einsum("lk,lkd->ld", weights, tokens))
        return reached

    @torch.no_grad()
    def scatter(self, random: torch.Generator) -> None:
        """Start somewhere else."""
        for parameter in (self.attention, self.logits):
            if parameter.requires_grad:
                parameter.normal_(generator=random)
        self.project()

    @torch.no_grad()
    def project(self) -> None:
        """Back into the norms."""
        attention, radius = self.radii
        self.attention.mul_(min(1.0, attention / max(float(self.attention.norm()), 1e-12)))
        if radius is not None:
            self.bank.mul_((radius / self.bank.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0))


def _ascend(ball: _Ball, along: Tensor, steps: int) -> float:
    """The largest value met on the way up."""
    learnt = [parameter for parameter in ball.parameters() if parameter.requires_grad]
    with torch.no_grad():
        best = float(ball(along))
    if not learnt:
        return best
    optimizer = torch.optim.Adam(learnt, lr=LEARNING_RATE, maximize=True)
    for _ in range(steps):
        optimizer.zero_grad()
        ball(along).backward()
        optimizer.step()
        ball.project()
        with torch.no_grad():
            best = max(best, float(ball(along)))
    return best


def _estimate(found: list[float]) -> Estimate:
    if len(found) < 2:
        raise ConfigError("A standard error needs several draws", got=len(found), expected="2 or more")
    return Estimate(float(np.mean(found)), float(np.std(found, ddof=1)) / sqrt(len(found)), len(found))
