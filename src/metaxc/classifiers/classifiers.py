"""One classifier per observed item: what the clicks taught about it, by ridge regression or centroids in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array
from torch import Tensor

from metaxc.array_checks import AGAIN, take_array
from metaxc.arrays import Doubles, Floats, Rows
from metaxc.artifacts import load_arrays, save_arrays
from metaxc.classifiers.query_layers import QueryTransformer, apply_linear
from metaxc.data.clicks import clicks_per_item
from metaxc.errors import DataError, ModelError


@dataclass(frozen=True)
class Classifiers:
    """Classifiers of the observed items, at unit length unless they were trained to keep their length.

    They are kept at unit length because they are combined: how much a classifier counts is a constant that is chosen
    on pseudo-novel items (`metaxc.emmett.scoring`), not a by-product of how many clicks its item has. The paper's
    generator takes them as they were trained (`OneVsAllConfig.keep_length`).

    Args:
        weights: (observed, dim) float32; a zero row where an item had no click.
        clicks: (observed,) the clicks that each was fitted on: their number, int64, or the sum of their weights,
            float64 (`metaxc.data.clicks.clicks_per_item`).
        query_layer: What is applied to every query embedding x before it is scored: (dim, dim) float32 for
            normalize(x + x @ query_layer), a transformer layer, or None.
        learnt_clicks: (observed,) how many of the clicks the encoder has learnt from; None where it has from all.
        ages: (observed,) float32, the days that had passed since the last of these clicks when it was fitted; 0 for an
            item without clicks. None where the times of the clicks are unknown.
    """

    weights: Floats
    clicks: Rows | Doubles
    query_layer: Floats | QueryTransformer | None = None
    learnt_clicks: Rows | Doubles | None = None
    ages: Floats | None = None

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        kind = "transformer" if isinstance(self.query_layer, QueryTransformer) else "linear"
        layer = "" if self.query_layer is None else f", with a {kind} query layer"
        return f"Classifiers({len(self):,} × {self.weights.shape[1]}{layer})"

    def take(self, rows: Rows | list[int] | slice) -> Classifiers:
        """The classifiers at `rows`."""
        learnt = None if self.learnt_clicks is None else self.learnt_clicks[rows]
        ages = None if self.ages is None else self.ages[rows]
        return Classifiers(self.weights[rows], self.clicks[rows], self.query_layer, learnt, ages)

    def padded(self, more: int) -> Classifiers:
        """The same classifiers, and then those of `more` items without clicks, which are zero."""
        if self.learnt_clicks is not None:
            raise ValueError("classifiers with clicks that came after the training are never padded")
        weights = np.zeros((len(self) + more, self.weights.shape[1]), np.float32)
        weights[: len(self)] = self.weights
        clicks = np.concatenate([self.clicks, np.zeros(more, self.clicks.dtype)])
        ages = None if self.ages is None else np.concatenate([self.ages, np.zeros(more, np.float32)])
        return Classifiers(weights, clicks, self.query_layer, ages=ages)

    def save(self, file: Path) -> None:
        """Write a safetensors file."""
        arrays: dict[str, NDArray[Any]] = {"weights": self.weights, "clicks": self.clicks}
        if self.ages is not None:
            arrays["ages"] = self.ages
        if isinstance(self.query_layer, QueryTransformer):
            arrays |= self.query_layer.arrays()
        elif self.query_layer is not None:
            arrays["query_layer"] = self.query_layer
        save_arrays(file, arrays)

    @classmethod
    def load(cls, file: Path) -> Classifiers:
        """Read what `save` wrote."""
        arrays = load_arrays(file)
        weights = take_array(arrays, "weights", file, (None, None))
        count, dim = weights.shape
        clicks = take_array(arrays, "clicks", file, (count,), ("int64", "float64"))
        if len(clicks) and clicks.min() < 0:
            raise ModelError("A click count is negative", got=f"{file.name}: {clicks.min()}", fix=AGAIN)
        layer: Floats | QueryTransformer | None = QueryTransformer.from_arrays(arrays, dim, file)
        if "query_layer" in arrays:
            layer = take_array(arrays, "query_layer", file, (dim, dim))
        ages = None
        if "ages" in arrays:
            ages = take_array(arrays, "ages", file, (count,))
            if len(ages) and ages.min() < 0:
                raise ModelError("An age is negative", got=f"{file.name}: {ages.min():g} days", fix=AGAIN)
        return cls(weights, clicks, layer, ages=ages)

    def transform_queries(self, embeddings: Floats) -> Floats:
        """Apply the query layer to (n, dim) query embeddings, where there is one."""
        if self.query_layer is None:
            return embeddings
        if isinstance(self.query_layer, QueryTransformer):
            return self.query_layer.transform(embeddings)
        return normalize_rows(embeddings + embeddings @ self.query_layer)

    @property
    def query_function(self) -> Callable[[Tensor], Tensor] | None:
        """The query layer as a function of (n, dim) tensors, through which gradients flow; None where there is none."""
        if self.query_layer is None or isinstance(self.query_layer, QueryTransformer):
            return self.query_layer
        return partial(apply_linear, layer=torch.from_numpy(np.array(self.query_layer)))


def normalize_rows(rows: NDArray[np.floating]) -> Floats:
    """Scale rows to unit length; zero rows stay zero."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(norms > 0, norms, 1.0)).astype(np.float32)


def check_training(queries: Floats, clicks: csr_array) -> None:
    """Raise unless there is one finite embedding per row of clicks."""
    if len(queries) != clicks.shape[0]:
        raise DataError(
            "Queries and clicks differ in number",
            got=f"{len(queries)} embeddings, {clicks.shape[0]} rows of clicks",
            expected="one embedding per query",
        )
    if not np.isfinite(queries).all():
        raise DataError("The query embeddings contain NaN or infinity", expected="finite numbers")


QUERY_BLOCK = 65_536
ITEM_BLOCK = 65_536


def ridge(queries: Floats, clicks: csr_array, penalty: float = 1.0) -> Classifiers:
    """Least squares of the clicks on the query embeddings, all items at once:
    W = Yᵀ X (XᵀX + penalty·I)⁻¹, rows scaled to unit length.

    Args:
        queries: (queries, dim) float32, may be memory-mapped.
        clicks: (queries, observed) weights; the target of the regression.
        penalty: λ; on unit embeddings 1 is as good as any value between 0.3 and 10.
    """
    check_training(queries, clicks)
    weights = solve_ridge(gram_matrix(queries), _sum_of_queries(queries, clicks), penalty)
    return Classifiers(weights, clicks_per_item(clicks))


def gram_matrix(queries: Floats) -> Doubles:
    """(dim, dim) float64: XᵀX of (queries, dim) embeddings, which may be memory-mapped."""
    gram = np.zeros((queries.shape[1], queries.shape[1]))
    for start in range(0, len(queries), QUERY_BLOCK):
        block = np.asarray(queries[start : start + QUERY_BLOCK], dtype=np.float32)
        gram += block.T @ block
    return gram


def solve_ridge(gram: Doubles, sums: Floats, penalty: float) -> Floats:
    """(items, dim) float32, unit rows: the classifiers of items, from the Gram matrix of the queries and the sums of
    the queries that clicked each item, which are overwritten."""
    factor = cho_factor(gram + penalty * np.eye(len(gram)))
    for start in range(0, len(sums), ITEM_BLOCK):
        part = sums[start : start + ITEM_BLOCK]
        sums[start : start + ITEM_BLOCK] = normalize_rows(cho_solve(factor, part.T.astype(np.float64)).T)
    return sums


def centroid(queries: Floats, clicks: csr_array) -> Classifiers:
    """The mean embedding of the queries that clicked an item, by the weights of the clicks, at unit length."""
    check_training(queries, clicks)
    return Classifiers(normalize_rows(_sum_of_queries(queries, clicks)), clicks_per_item(clicks))


def _sum_of_queries(queries: Floats, clicks: csr_array) -> Floats:
    return np.asarray(clicks.T @ np.asarray(queries, dtype=np.float32), dtype=np.float32)
