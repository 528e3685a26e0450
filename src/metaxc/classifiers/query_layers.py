"""Layers over the query embeddings that are trained together with one-vs-all classifiers.

*Linear*: normalize(x + x @ layer), one matrix. *Transformer*, as in the paper: one post-norm transformer layer at the
output side of the query encoder. A pooled embedding is a sequence of one token, and attention over one token gives it
the weight 1 whatever its queries and keys are; what remains of self-attention is its value projection.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from metaxc.array_checks import take_array
from metaxc.arrays import Floats

PREFIX = "query_layer."
"""Begins the names of a transformer layer's arrays in the file of the classifiers."""

BLOCK = 16_384
"""Queries transformed at once: with 384 dimensions 25 MB, and twice that between the two linear layers."""

DROPOUT = 0.1


class QueryTransformer(nn.Module):
    """One post-norm transformer layer over a pooled query embedding: h = LN(x + A x), then LN(h + W₂ gelu(W₁ h)).

    Both branches start at zero, so that the layer starts at the embedding itself, centred and at the length √dim that a
    layer norm gives. The output keeps its length: scores are inner products, as in the paper.

    Args:
        dim: Size of an embedding.
        hidden: Feed-forward units; twice `dim` if None.
    """

    def __init__(self, dim: int, hidden: int | None = None):
        super().__init__()
        hidden = 2 * dim if hidden is None else hidden
        self.attention = nn.Linear(dim, dim)
        self.attention_norm = nn.LayerNorm(dim)
        self.hidden = nn.Linear(dim, hidden)
        self.out = nn.Linear(hidden, dim)
        self.out_norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(DROPOUT)
        for branch in (self.attention, self.out):
            nn.init.zeros_(branch.weight)
            nn.init.zeros_(branch.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(n, dim) queries as the classifiers see them."""
        h = self.attention_norm(x + self.dropout(self.attention(x)))
        y: Tensor = self.out_norm(h + self.dropout(self.out(functional.gelu(self.hidden(h)))))
        return y

    def transform(self, embeddings: Floats) -> Floats:
        """(n, dim) float32: `forward` without dropout, in blocks; the embeddings may be memory-mapped."""
        self.eval()
        found = np.empty(embeddings.shape, np.float32)
        with torch.inference_mode():
            for start in range(0, len(embeddings), BLOCK):
                block = torch.from_numpy(np.array(embeddings[start : start + BLOCK], dtype=np.float32))
                found[start : start + BLOCK] = self(block).numpy()
        return found

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The weights, for a tensor file."""
        return {f"{PREFIX}{name}": tensor.numpy() for name, tensor in self.state_dict().items()}

    def frozen(self) -> QueryTransformer:
        """The same layer on the processor, without dropout and gradients, as classifiers keep it."""
        return self.cpu().eval().requires_grad_(False)

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]], dim: int, file: Path) -> QueryTransformer | None:
        """What `arrays` returned, checked; None where the file has no such layer."""
        if not any(name.startswith(PREFIX) for name in arrays):
            return None
        hidden = take_array(arrays, f"{PREFIX}hidden.bias", file, (None,)).shape[0]
        layer = QueryTransformer(dim, hidden)
        weights = {
            name: torch.from_numpy(np.array(take_array(arrays, f"{PREFIX}{name}", file, tuple(tensor.shape))))
            for name, tensor in layer.state_dict().items()
        }
        layer.load_state_dict(weights)
        return layer.frozen()


def apply_linear(x: Tensor, layer: Tensor) -> Tensor:
    """(n, dim): normalize(x + x @ layer), the linear query layer."""
    return functional.normalize(x + x @ layer, dim=1)
