"""The paper's generator: a transformer over the item's embedding and its selected classifiers.

`ResidualTransformer`: pre-norm layers whose output, zero at the start, is added to the training-free combine. Untrained
it *is* the combine, so training starts from it. `PostNormTransformer`, as in the paper: post-norm layers, and the
mean over tokens as output. It first has to learn the identity.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from metaxc.generators.generator import TorchGenerator, combine_weights


def heads_for(dim: int) -> int:
    """The number of attention heads: of 64 dimensions where that divides `dim`."""
    return next(h for h in (max(dim // 64, 1), 4, 2, 1) if dim % h == 0)


class _TypedTokens(nn.Module):
    """The input sequence: z + t_enc, w₁ + t_clf, …, w_K + t_clf, and which of them are padding."""

    def __init__(self, dim: int):
        super().__init__()
        self.encoder_type = nn.Parameter(0.02 * torch.randn(dim))
        self.classifier_type = nn.Parameter(0.02 * torch.randn(dim))

    def forward(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        own = (embeddings + self.encoder_type).unsqueeze(1)
        tokens = torch.cat([own, selected + self.classifier_type], dim=1)
        missing = torch.isneginf(scores)
        padding = torch.cat([missing.new_zeros(len(scores), 1), missing], dim=1)
        return tokens, padding


def _layers(dim: int, depth: int, hidden: int, norm_first: bool, dropout: float) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        dim,
        heads_for(dim),
        hidden,
        dropout=dropout,
        activation="gelu",
        batch_first=True,
        norm_first=norm_first,
    )
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


class ResidualTransformer(TorchGenerator):
    """The combine plus a learnt correction that starts at zero.

    Args:
        dim: Size of an embedding.
        depth: Transformer layers; one is enough (the paper's choice too).
        strength: Strength of the combine that it starts at; trained.
        temperature: Temperature of the combine that it starts at; trained.
    """

    kind: ClassVar[str] = "transformer"

    def __init__(self, dim: int, depth: int = 1, strength: float = 0.5, temperature: float = 0.1):
        super().__init__()
        self.dim, self.depth = dim, depth
        self.tokens = _TypedTokens(dim)
        self.layers = _layers(dim, depth, 2 * dim, norm_first=True, dropout=0.1)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, dim)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.strength = nn.Parameter(torch.tensor(float(strength)))
        self.log_temperature = nn.Parameter(torch.tensor(float(temperature)).log())

    def __repr__(self) -> str:
        return (
            f"ResidualTransformer(depth={self.depth}, strength={self.strength.item():.3f}, "
            f"temperature={self.log_temperature.exp().item():.3f})"
        )

    def settings(self) -> dict[str, float | int]:
        return {"dim": self.dim, "depth": self.depth}

    def weigh(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        return combine_weights(scores, self.strength, self.log_temperature.exp())

    def forward(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        tokens, padding = self.tokens(embeddings, selected, scores)
        mixed = self.layers(tokens, src_key_padding_mask=padding)[:, 0]
        correction: Tensor = self.out(self.norm(mixed))
        return super().forward(embeddings, selected, scores) + correction


class PostNormTransformer(TorchGenerator):
    """The layer as the paper writes it: post-norm, no skip path around it, mean over the tokens.

    Args:
        dim: Size of an embedding.
        depth: Transformer layers.
    """

    kind: ClassVar[str] = "post_norm"

    def __init__(self, dim: int, depth: int = 1):
        super().__init__()
        self.dim, self.depth = dim, depth
        self.tokens = _TypedTokens(dim)
        self.layers = _layers(dim, depth, 2048, norm_first=False, dropout=0.1)

    def __repr__(self) -> str:
        return f"PostNormTransformer(depth={self.depth})"

    def settings(self) -> dict[str, float | int]:
        return {"dim": self.dim, "depth": self.depth}

    def forward(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        tokens, padding = self.tokens(embeddings, selected, scores)
        mixed = self.layers(tokens, src_key_padding_mask=padding)
        there = (~padding).float().unsqueeze(2)
        pooled: Tensor = (mixed * there).sum(dim=1) / there.sum(dim=1)
        return pooled

    def weigh(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        """The attention that each token receives in the first layer, averaged over heads and tokens."""
        tokens, padding = self.tokens(embeddings, selected, scores)
        first = self.layers.layers[0]
        assert isinstance(first, nn.TransformerEncoderLayer)
        _, attention = first.self_attn(tokens, tokens, tokens, key_padding_mask=padding, need_weights=True)
        there = (~padding).float()
        paid: Tensor = (attention * there.unsqueeze(2)).sum(dim=1) / there.sum(dim=1, keepdim=True)
        return paid
