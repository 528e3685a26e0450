"""The paper's generator: a transformer over the item's embedding and its selected classifiers.

`ResidualTransformer`: pre-norm layers whose output, zero at the start, is added to the training-free combine. Untrained
it *is* the combine, so training starts from it. `PostNormTransformer`, as in the paper: post-norm layers, and the
mean over tokens as output. From random weights it first has to learn the identity; with `zero_start` it starts at the
mean of its inputs.

Both can be trained and served without neighbours (`alone`). What is learnt then is a map of the item's own embedding:
the control that shows how much of a gain the neighbours bring.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from metaxc.generators.generator import TorchGenerator, combine_weights

POST_NORM_HIDDEN = 2048
"""Feed-forward units of the post-norm layer where nothing else is asked for: torch's default."""


def heads_for(dim: int) -> int:
    """The number of attention heads: of 64 dimensions where that divides `dim`."""
    return next(h for h in (max(dim // 64, 1), 4, 2, 1) if dim % h == 0)


FEATURES = 4
"""What is told of a neighbour beside its classifier: see `neighbour_features`."""

MOST_LOG_CLICKS = 5.0
"""Bound of the features that are logarithms."""


def neighbour_features(selected: Tensor, scores: Tensor) -> Tensor:
    """(n, K, `FEATURES`): what layer norms hide of a neighbour. Its similarity, how far that is below the nearest's,
    the logarithm of its classifier's length, and that of its clicks.

    A classifier at unit length is scaled by the trust in its clicks, n / (n + prior), so the log-odds of the length are
    the logarithm of clicks / prior.
    """
    present = torch.isfinite(scores)
    similar = scores.masked_fill(~present, 0.0)
    nearest = similar.max(dim=1, keepdim=True).values if scores.shape[1] else similar
    length = selected.norm(dim=2).clamp(min=1e-6)
    trust = length.clamp(max=1 - 1e-4)
    logarithms = torch.stack([length.log(), trust.logit()], dim=2).clamp(-MOST_LOG_CLICKS, MOST_LOG_CLICKS)
    told = torch.cat([torch.stack([similar, similar - nearest], dim=2), logarithms], dim=2)
    return told * present.unsqueeze(2)


def without_neighbours(selected: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The selected classifiers and scores of items that have no neighbours: zeros, and −inf everywhere."""
    return torch.zeros_like(selected), torch.full_like(scores, float("-inf"))


class _TypedTokens(nn.Module):
    """The input sequence: z + t_enc, w₁ + t_clf, …, w_K + t_clf, and which of them are padding.

    Args:
        dim: Size of an embedding.
        features: Whether a neighbour's token has a linear map of `neighbour_features` added.
    """

    def __init__(self, dim: int, features: bool = False):
        super().__init__()
        self.encoder_type = nn.Parameter(0.02 * torch.randn(dim))
        self.classifier_type = nn.Parameter(0.02 * torch.randn(dim))
        self.features = nn.Linear(FEATURES, dim, bias=False) if features else None

    def forward(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        own = (embeddings + self.encoder_type).unsqueeze(1)
        neighbours = selected + self.classifier_type
        if self.features is not None:
            neighbours = neighbours + self.features(neighbour_features(selected, scores))
        tokens = torch.cat([own, neighbours], dim=1)
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


def _settings(
    generator: ResidualTransformer | PostNormTransformer, **defaults: int
) -> dict[str, float | int]:
    """The size of a transformer, and what differs from its defaults: older models, which say nothing else, keep their
    fingerprints."""
    changed = {name: getattr(generator, name) for name in defaults}
    changed = {name: value for name, value in changed.items() if value != defaults[name]}
    return {"dim": generator.dim, "depth": generator.depth, **changed}


class ResidualTransformer(TorchGenerator):
    """The combine plus a learnt correction that starts at zero.

    Args:
        dim: Size of an embedding.
        depth: Transformer layers; one is enough (the paper's choice too).
        strength: Strength of the combine that it starts at; trained.
        temperature: Temperature of the combine that it starts at; trained.
        hidden: Feed-forward units; twice `dim` if 0.
        features: 1 to tell it of each neighbour's similarity and clicks.
        alone: 1 for the control that sees no neighbours.
    """

    kind: ClassVar[str] = "transformer"

    def __init__(
        self,
        dim: int,
        depth: int = 1,
        strength: float = 0.5,
        temperature: float = 0.1,
        hidden: int = 0,
        features: int = 0,
        alone: int = 0,
    ):
        super().__init__()
        self.dim, self.depth, self.hidden, self.features, self.alone = dim, depth, hidden, features, alone
        self.tokens = _TypedTokens(dim, bool(features))
        self.layers = _layers(dim, depth, hidden or 2 * dim, norm_first=True, dropout=0.1)
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
        return _settings(self, hidden=0, features=0, alone=0)

    def weigh(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        if self.alone:
            selected, scores = without_neighbours(selected, scores)
        return combine_weights(scores, self.strength, self.log_temperature.exp())

    def forward(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        if self.alone:
            selected, scores = without_neighbours(selected, scores)
        tokens, padding = self.tokens(embeddings, selected, scores)
        mixed = self.layers(tokens, src_key_padding_mask=padding)[:, 0]
        correction: Tensor = self.out(self.norm(mixed))
        return super().forward(embeddings, selected, scores) + correction


class PostNormTransformer(TorchGenerator):
    """The layer as the paper writes it: post-norm, no skip path around it, mean over the tokens.

    Args:
        dim: Size of an embedding.
        depth: Transformer layers.
        hidden: Feed-forward units.
        features: 1 to tell it of each neighbour's similarity and clicks.
        alone: 1 for the control that sees no neighbours.
        zero_start: Whether attention and feed-forward layers add nothing at the start. The generator then starts at the
            mean of its layer-normed inputs: the paper's plain sum, but for lengths.
    """

    kind: ClassVar[str] = "post_norm"

    def __init__(
        self,
        dim: int,
        depth: int = 1,
        hidden: int = POST_NORM_HIDDEN,
        features: int = 0,
        alone: int = 0,
        *,
        zero_start: bool = False,
    ):
        super().__init__()
        self.dim, self.depth, self.hidden, self.features, self.alone = dim, depth, hidden, features, alone
        self.tokens = _TypedTokens(dim, bool(features))
        self.layers = _layers(dim, depth, hidden, norm_first=False, dropout=0.1)
        if zero_start:
            for layer in self.layers.layers:
                assert isinstance(layer, nn.TransformerEncoderLayer)
                for branch in (layer.self_attn.out_proj, layer.linear2):
                    nn.init.zeros_(branch.weight)
                    nn.init.zeros_(branch.bias)

    def __repr__(self) -> str:
        return f"PostNormTransformer(depth={self.depth})"

    def settings(self) -> dict[str, float | int]:
        return _settings(self, hidden=POST_NORM_HIDDEN, features=0, alone=0)

    def forward(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        if self.alone:
            selected, scores = without_neighbours(selected, scores)
        tokens, padding = self.tokens(embeddings, selected, scores)
        mixed = self.layers(tokens, src_key_padding_mask=padding)
        there = (~padding).float().unsqueeze(2)
        pooled: Tensor = (mixed * there).sum(dim=1) / there.sum(dim=1)
        return pooled

    def weigh(self, embeddings: Tensor, selected: Tensor, scores: Tensor) -> Tensor:
        """The attention that each token receives in the first layer, averaged over heads and tokens."""
        if self.alone:
            selected, scores = without_neighbours(selected, scores)
        tokens, padding = self.tokens(embeddings, selected, scores)
        first = self.layers.layers[0]
        assert isinstance(first, nn.TransformerEncoderLayer)
        _, attention = first.self_attn(tokens, tokens, tokens, key_padding_mask=padding, need_weights=True)
        there = (~padding).float()
        paid: Tensor = (attention * there.unsqueeze(2)).sum(dim=1) / there.sum(dim=1, keepdim=True)
        return paid
