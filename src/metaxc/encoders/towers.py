"""Two towers on token bags: what adapts an encoder to the clicks.

Each side, query and item, has its own tower

    tower(x, tokens) = normalize(x + mean(token vectors) + MLP(x))

with x the frozen embedding of the text. The token table and the MLP's last layer start at zero, so an
untrained tower is the frozen encoder. Why so (docs/decisions.md): the two sides mean
different things by the same word; a token table learns what a word means *for these clicks* at a hundredth
of the cost of fine-tuning the transformer. Without x (`base=False`) the tower is the static encoder.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Tower(nn.Module):
    """One side.

    Args:
        vocabulary: Number of token ids.
        dim: Size of the embedding.
        base: Whether a frozen embedding comes in beside the tokens.
    """

    def __init__(self, vocabulary: int, dim: int, base: bool = True):
        super().__init__()
        self.base = base
        self.table = nn.Parameter(torch.zeros(vocabulary, dim))
        if base:
            self.hidden = nn.Linear(dim, dim)
            self.out = nn.Linear(dim, dim)
            nn.init.zeros_(self.out.weight)
            nn.init.zeros_(self.out.bias)

    def forward(
        self, x: Tensor | None, tokens: Tensor, offsets: Tensor, kept: Tensor | None = None
    ) -> Tensor:
        """Unit embeddings (n, dim).

        Args:
            x: (n, dim) frozen embeddings, None for a static tower.
            tokens: (sum of lengths,) token ids.
            offsets: (n,) where each text's tokens begin.
            kept: (sum of lengths,) 0/1, for token dropout; mean over all tokens of the text either way.
        """
        lengths = torch.diff(offsets, append=torch.tensor([len(tokens)])).clamp(min=1)
        weights = torch.repeat_interleave(1.0 / lengths, lengths)[: len(tokens)] if len(tokens) else None
        if weights is not None and kept is not None:
            weights = weights * kept
        if weights is None:
            bag = torch.zeros(len(offsets), self.table.shape[1])
        else:
            bag = functional.embedding_bag(
                tokens, self.table, offsets, mode="sum", per_sample_weights=weights, sparse=self.training
            )
        if x is None:
            return functional.normalize(bag, dim=1)
        return functional.normalize(x + bag + self.out(functional.gelu(self.hidden(x))), dim=1)


class TwoTowers(nn.Module):
    """The query tower, the item tower, and the scale at which their cosines become logits.

    `losses` is the learning curve, one value per step of training; empty when untrained.
    """

    def __init__(self, vocabulary: int, dim: int, base: bool = True, scale: float = 12.0):
        super().__init__()
        self.losses: list[float] = []
        self.query = Tower(vocabulary, dim, base)
        self.item = Tower(vocabulary, dim, base)
        self.log_scale = nn.Parameter(torch.tensor(scale).log())
