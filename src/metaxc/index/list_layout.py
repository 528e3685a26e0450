"""How the vectors of a large index are divided into lists, and which lists a query should look into.

Vectors are grouped by direction, because a query asks for directions: k-means on un-normalised vectors collects the
short ones of all topics in a few lists. The last coordinate of a vector may be a share of an exposure, which each query
multiplies with a value of its own. A list in which it varies cannot be judged by its mean, so the groups are divided
once more into bands of the last coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metaxc.arrays import Floats, Rows
from metaxc.artifacts import Arrays
from metaxc.extras import import_extra

DIRECTIONS_PER_ROOT = 2.0
"""Directions per square root of the number of vectors: 2,000 for a million. With more of them, fewer codes are scanned
but a query is compared with more directions. A starting point, not measured."""

MAX_DIRECTIONS = 4096
"""Most directions, because each query and each new vector is compared with all of them. A starting point."""

SAMPLE_PER_DIRECTION = 32
"""Vectors per direction in the sample that the directions are trained on. A starting point, not measured."""

KMEANS_ITERATIONS = 6
"""Iterations of k-means when the directions are trained. A starting point, not measured."""

BANDS = 6
"""Bands of the last coordinate. A starting point, not measured."""

SPECIAL_VARIANCE = 1.5
"""The last coordinate is divided into bands if its variance is more than this many times the mean variance of the
others: a novelty from 0 to 1 has 30 times that of a coordinate of a unit vector of 384 dimensions, and twice that of
one of 24. Without bands, recall@10 was 0.71 for an exposure of five query lengths at 24 dimensions; lowering this value
until they are made there is what brought it to its target (tests/index/test_ivf.py)."""

BLOCK = 4096
"""Vectors that are assigned at a time: their scores for 4,096 directions take 64 MiB."""


def count_directions(count: int) -> int:
    """Number of directions for `count` vectors."""
    return int(min(MAX_DIRECTIONS, max(1, round(DIRECTIONS_PER_ROOT * np.sqrt(count)))))


@dataclass(frozen=True)
class ListLayout:
    """Directions and bands; the list of direction i and band j has the number i · bands + j.

    Args:
        directions: (directions, width) float32, unit rows. The width is that of a vector if there is one band, and one
            less otherwise, because the last coordinate is then judged by the bands alone.
        lengths: (directions,) float32, mean length of the vectors of a direction along it.
        bands: (bands,) float32, ascending, mean last coordinate of the vectors in each band.
    """

    directions: Floats
    lengths: Floats
    bands: Floats

    @classmethod
    def train(cls, sample: Floats, directions: int, seed: int) -> ListLayout:
        """Find directions and bands for vectors like those of a sample (n, dim)."""
        faiss = import_extra("faiss", "serve")
        bands = _find_bands(sample)
        rest = sample if len(bands) == 1 else sample[:, :-1]
        lengths = np.linalg.norm(rest, axis=1, keepdims=True)
        units = np.ascontiguousarray(rest / np.maximum(lengths, np.float32(1e-30)))
        means = faiss.Kmeans(
            rest.shape[1],
            min(directions, len(rest)),
            niter=KMEANS_ITERATIONS,
            seed=seed + 1,
            spherical=True,
            min_points_per_centroid=1,
            max_points_per_centroid=SAMPLE_PER_DIRECTION,
        )
        means.train(units)
        found = np.asarray(means.centroids, np.float32)
        layout = cls(found, np.ones(len(found), np.float32), bands)
        nearest = layout._assign_directions(rest)
        along = np.vecdot(rest, found[nearest])
        total = (
            np.bincount(nearest, along, len(found)) + along.mean()
        )  # one average vector for each direction
        mean = total / (np.bincount(nearest, minlength=len(found)) + 1)
        return cls(found, mean.astype(np.float32), bands)

    def __len__(self) -> int:
        return len(self.directions) * len(self.bands)

    @property
    def is_banded(self) -> bool:
        """Whether the last coordinate is treated separately."""
        return len(self.bands) > 1

    def assign(self, vectors: Floats) -> Rows:
        """The list (n,) of each vector (n, dim)."""
        if not self.is_banded:
            return self._assign_directions(vectors)
        edges = (self.bands[1:] + self.bands[:-1]) / 2
        numbers = self._assign_directions(vectors[:, :-1]) * len(self.bands)
        return numbers + np.searchsorted(edges, vectors[:, -1])

    def score_lists(self, queries: Floats) -> Floats:
        """The score (n, lists) that a typical vector of each list has for each query (n, dim)."""
        if not self.is_banded:
            return np.asarray(queries @ self.directions.T * self.lengths, np.float32)
        along = queries[:, :-1] @ self.directions.T * self.lengths
        scores = along[:, :, None] + (queries[:, -1:] * self.bands)[:, None, :]
        return scores.reshape(len(queries), -1)

    def to_arrays(self) -> Arrays:
        """The arrays that `from_arrays` restores the layout from."""
        return {"directions": self.directions, "lengths": self.lengths, "bands": self.bands}

    @classmethod
    def from_arrays(cls, arrays: Arrays, dim: int) -> ListLayout:
        """Restore a layout of vectors of length `dim`; a `ValueError` if the arrays are not one."""
        layout = cls(arrays["directions"], arrays["lengths"], arrays["bands"])
        width = dim - int(layout.is_banded)
        if layout.directions.ndim != 2 or layout.directions.shape[1] != width:
            raise ValueError(f"directions of shape {layout.directions.shape} for vectors of {dim} dimensions")
        if layout.lengths.shape != layout.directions.shape[:1] or layout.bands.ndim != 1:
            raise ValueError(f"{layout.lengths.shape} lengths for {len(layout.directions)} directions")
        return layout

    def _assign_directions(self, rest: Floats) -> Rows:
        nearest = np.empty(len(rest), np.int64)
        for start in range(0, len(rest), BLOCK):
            nearest[start : start + BLOCK] = (rest[start : start + BLOCK] @ self.directions.T).argmax(axis=1)
        return nearest


def take_lists(scores: Floats, sizes: Rows, wanted: int) -> Rows:
    """The lists with the best scores that together hold at least `wanted` vectors, best first; all if they hold fewer.

    Args:
        scores: (lists,) float32.
        sizes: (lists,) vectors in each list; empty lists are left out.
        wanted: Number of vectors.
    """
    filled = np.flatnonzero(sizes)
    scores = scores[filled]
    # Lists near a query may be smaller than the average one.
    width = 64 + 2 * wanted * len(filled) // max(1, int(sizes.sum()))
    while True:
        best = np.arange(len(scores))
        if width < len(scores):
            best = np.argpartition(scores, len(scores) - width)[len(scores) - width :]
        best = best[np.argsort(-scores[best], kind="stable")]
        total = np.cumsum(sizes[filled[best]])
        if len(best) == len(scores) or total[-1] >= wanted:
            return np.asarray(filled[best[: int(np.searchsorted(total, wanted)) + 1]], np.int64)
        width *= 4


def _find_bands(sample: Floats) -> Floats:
    """Mean values of the bands of the last coordinate, by k-means in one dimension; one band if it is not special."""
    variances = sample.var(axis=0, dtype=np.float64)
    last = sample[:, -1].astype(np.float64)
    if sample.shape[1] < 2 or variances[-1] <= SPECIAL_VARIANCE * variances[:-1].mean():
        return np.array([last.mean()], np.float32)
    values, counts = np.unique(last, return_counts=True)
    means = np.linspace(values[0], values[-1], BANDS)
    for _ in range(20):
        band = np.searchsorted((means[1:] + means[:-1]) / 2, values)
        weights = np.bincount(band, counts, len(means))
        sums = np.bincount(band, counts * values, len(means))
        means = (sums / np.maximum(weights, 1))[weights > 0]
    return means.astype(np.float32)
