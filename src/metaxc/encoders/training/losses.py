"""The loss of every recipe: a softmax over the batch, in both directions, clicks never counted as misses."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def contrastive_loss(
    queries: Tensor, items: Tensor, scale: Tensor, also_clicked: Tensor, popularity: Tensor | None = None
) -> Tensor:
    """In-batch softmax in both directions, each pair against true negatives only.

    Args:
        queries: (n, dim), row i clicked
        items: (n + m, dim), row i; the last m are negatives that no query of the batch was paired with.
        scale: What the inner products are multiplied by.
        also_clicked: (n, n + m) bool, True where query i clicked item j: left out as a negative, and the
            diagonal put back as the one positive.
        popularity: (n + m,) taken off each item's logit when items compete for a query, None for nothing. Popular
            items stand in more batches and so are negatives more often; without this they are learnt to be
            unlikely, though they are what is clicked most.
    """
    pairs = len(queries)
    logits = scale * (queries @ items.T)
    itself = torch.eye(pairs, len(items), dtype=torch.bool, device=logits.device)
    logits = logits.masked_fill(also_clicked & ~itself, float("-inf"))
    target = torch.arange(pairs, device=logits.device)
    among_items = logits if popularity is None else logits - popularity
    among_queries = logits[:, :pairs].T
    return (
        functional.cross_entropy(among_items, target) + functional.cross_entropy(among_queries, target)
    ) / 2
