"""The combine, with its constants predicted for each item from what is known when serving.

How far the neighbours can be trusted differs from item to item: whether they are near, have many clicks, agree with the
item's text and with each other. `Gated` sees these few numbers and nothing else, and predicts from them the weight of
each neighbour, the strength of all together, and the length of the meta-classifier (an item whose neighbours are often
clicked is likely to be clicked often).

It sees no coordinate of any embedding, only lengths and angles. What it learns in one encoder's space therefore holds
in another's: it can be trained on folds whose encoders differ from the final one. Its few hundred parameters need few
items.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from metaxc.generators.generator import TorchGenerator, masked_softmax

OF_NEIGHBOUR, OF_ITEM = 5, 9
LEAST_TRUST = 0.01


class Gated(TorchGenerator):
    """u = s · (z + a · Σ α_k w_k), with s, a and α_k functions of lengths and angles.

    Untrained it is the combine.

    Args:
        strength: The value that a starts at.
        temperature: Temperature of the softmax of similarities that α starts at.
        hidden: Hidden units of each of the two small networks.
    """

    kind: ClassVar[str] = "gated"
    learning_rate: ClassVar[float] = 5e-3

    def __init__(self, strength: float = 0.5, temperature: float = 0.1, hidden: int = 16):
        super().__init__()
        self.hidden = hidden
        self.log_strength = nn.Parameter(torch.tensor(float(strength)).log())
        self.log_temperature = nn.Parameter(torch.tensor(float(temperature)).log())
        self.neighbour = _starting_at_zero(OF_NEIGHBOUR + OF_ITEM, hidden, 1)
        self.item = _starting_at_zero(OF_ITEM, hidden, 2)
        self.centre: Tensor
        self.spread: Tensor
        self.register_buffer("centre", torch.zeros(OF_NEIGHBOUR + OF_ITEM))
        self.register_buffer("spread", torch.ones(OF_NEIGHBOUR + OF_ITEM))

    def __repr__(self) -> str:
        strength, temperature = self.log_strength.exp().item(), self.log_temperature.exp().item()
        return f"Gated(strength={strength:.3f}, temperature={temperature:.3f}, hidden={self.hidden})"

    def settings(self) -> dict[str, float | int]:
        return {"hidden": self.hidden}

    def prepare(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> None:
        """Take mean and standard deviation of the features from these items."""
        seen = features(embeddings, selected, scores)[torch.isfinite(scores)]
        if len(seen) > 1:
            self.centre.copy_(seen.mean(dim=0))
            self.spread.copy_(seen.std(dim=0).clamp(min=1e-3))

    def weigh(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        present = torch.isfinite(scores)
        seen = (features(embeddings, selected, scores) - self.centre) / self.spread
        similar = scores.masked_fill(~present, 0.0) / self.log_temperature.exp()
        of_each = masked_softmax(similar + self.neighbour(seen).squeeze(2), present)
        stronger, longer = self.item(seen[:, 0, OF_NEIGHBOUR:]).split(1, dim=1)
        neighbours = (self.log_strength + stronger).exp() * of_each
        weights: Tensor = longer.exp() * torch.cat([scores.new_ones(len(scores), 1), neighbours], dim=1)
        return weights


def features(embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
    """(n, K, OF_NEIGHBOUR + OF_ITEM): features of each neighbour, followed by the item's, which repeat K times.

    They do not change when the whole space is rotated.
    """
    present = torch.isfinite(scores)
    scores = scores.masked_fill(~present, 0.0)
    count = present.sum(dim=1).clamp(min=1)

    def mean(values: Tensor) -> Tensor:
        return (values * present).sum(dim=1) / count

    trust = selected.norm(dim=2)  # classifiers are unit vectors scaled by trust
    unit = selected / trust.clamp(min=1e-6).unsqueeze(2)
    trust = trust.clamp(min=LEAST_TRUST).log()
    consensus = functional.normalize(unit.sum(dim=1), dim=1)
    with_text = torch.einsum("nkd,nd->nk", unit, embeddings)
    with_others = torch.einsum("nkd,nd->nk", unit, consensus)
    nearest, second = scores[:, 0], scores[:, min(1, scores.shape[1] - 1)]
    of_neighbour = torch.stack([scores, nearest.unsqueeze(1) - scores, trust, with_text, with_others], dim=2)
    of_item = torch.stack(
        [
            nearest,
            mean(scores),
            nearest - second,
            trust[:, 0],
            mean(trust),
            with_text[:, 0],
            mean(with_text),
            mean(with_others),
            (embeddings * consensus).sum(dim=1),
        ],
        dim=1,
    )
    return torch.cat([of_neighbour, of_item.unsqueeze(1).expand(-1, scores.shape[1], -1)], dim=2)


def _starting_at_zero(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    last = nn.Linear(hidden, outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), last)
