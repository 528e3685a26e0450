"""One classifier per observed item: what the clicks taught about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metaxc.arrays import Floats
from metaxc.artifacts import load_arrays, save_arrays
from metaxc.errors import DataError, ModelError


@dataclass(frozen=True)
class Classifiers:
    """Classifiers of the observed items, unit length.

    They are kept at unit length because they are combined: how much a classifier counts is a constant that
    is chosen on pseudo-novel items, not a by-product of how many clicks its item has.

    Args:
        weights: (observed, dim) float32, unit rows; a zero row where an item had no click.
        clicks: (observed,) int64, how many clicks each was fitted on.
        query_layer: (dim, dim) float32 or None; when given, every query embedding x becomes
            normalize(x + x @ query_layer) before anything is scored with it.
    """

    weights: Floats
    clicks: NDArray[np.int64]
    query_layer: Floats | None = None

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        layer = "" if self.query_layer is None else ", with a query layer"
        return f"Classifiers({len(self):,} × {self.weights.shape[1]}{layer})"

    def save(self, file: Path) -> None:
        """Write as a safetensors file."""
        arrays: dict[str, NDArray[Any]] = {"weights": self.weights, "clicks": self.clicks}
        save_arrays(file, arrays if self.query_layer is None else {**arrays, "query_layer": self.query_layer})

    @classmethod
    def load(cls, file: Path) -> Classifiers:
        """Read what `save` wrote."""
        arrays = load_arrays(file)
        try:
            return cls(arrays["weights"], arrays["clicks"], arrays.get("query_layer"))
        except KeyError as error:
            raise ModelError("The classifiers are incomplete", got=f"{file.name} without {error}") from error

    def trusted(self, prior_clicks: float) -> Floats:
        """(observed, dim) float32: each classifier scaled by n / (n + prior_clicks), n its item's clicks.

        What few clicks say is mostly noise; what many say holds. 0 trusts all alike.
        """
        n = self.clicks.astype(np.float32)[:, None]
        return (self.weights * (n / np.maximum(n + prior_clicks, 1e-6))).astype(np.float32)  # type: ignore[no-any-return]

    def queries(self, embeddings: Floats) -> Floats:
        """Query embeddings as these classifiers score them."""
        if self.query_layer is None:
            return embeddings
        return normalize_rows(embeddings + embeddings @ self.query_layer)


def normalize_rows(rows: NDArray[np.floating]) -> Floats:
    """Rows at unit length; zero rows stay zero."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(norms > 0, norms, 1.0)).astype(np.float32)


def check_training(queries: Floats, clicks: csr_array) -> None:
    """One embedding per row of clicks, all finite."""
    if len(queries) != clicks.shape[0]:
        raise DataError(
            "Queries and clicks differ in number",
            got=f"{len(queries)} embeddings, {clicks.shape[0]} rows of clicks",
            expected="one embedding per query",
        )
    if not np.isfinite(queries).all():
        raise DataError("The query embeddings hold NaN or infinity", expected="numbers")


def clicks_per_item(clicks: csr_array) -> NDArray[np.int64]:
    """(items,) how many queries clicked each."""
    return np.bincount(clicks.indices, minlength=clicks.shape[1]).astype(np.int64)
