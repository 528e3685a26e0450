"""The contrastive loss of every recipe.

sentence-transformers' `MultipleNegativesRankingLoss` knows one positive per query, so other clicked pairs of a batch
would be negatives, and it has neither a logQ correction nor a learnt scale. This loss has all three.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional

from metaxc.arrays import Floats


def contrastive_loss(
    queries: Tensor, items: Tensor, scale: Tensor, clicked: Tensor, logq: Tensor | None = None
) -> Tensor:
    """In-batch softmax in both directions; a clicked pair is never a negative.

    Args:
        queries: (n, dim) embeddings; query i clicked item i.
        items: (n + m, dim) embeddings; the last m are hard negatives that no query of the batch was paired with.
        scale: Multiplies the inner products to give logits.
        clicked: (n, n + m) bool, True where query i clicked item j. Such pairs are left out of the softmax, except for
            the pairs on the diagonal, which are the positives.
        logq: (n + m,) logQ correction, subtracted from each item's logit when items compete for a query; None for no
            correction. Popular items are in more batches and so are negatives more often; without the correction the
            encoder learns that they are unlikely, although they are clicked most.
    """
    pairs = len(queries)
    logits = scale * (queries @ items.T)
    diagonal = torch.eye(pairs, len(items), dtype=torch.bool, device=logits.device)
    logits = logits.masked_fill(clicked & ~diagonal, float("-inf"))
    target = torch.arange(pairs, device=logits.device)
    among_items = logits if logq is None else logits - logq
    among_queries = logits[:, :pairs].T
    return (
        functional.cross_entropy(among_items, target) + functional.cross_entropy(among_queries, target)
    ) / 2


def compute_logq(clicks: csr_array, strength: float) -> Floats:
    """(items,) float32: the logQ correction of each item, `strength` × log(clicks)."""
    counts = np.bincount(clicks.indices, minlength=clicks.shape[1])
    return (strength * np.log(np.maximum(counts, 1))).astype(np.float32)
