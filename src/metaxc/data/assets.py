"""Converter for "assets": the `.npy` and `.npz` arrays of the method's research code.

The folder contains vectors, classifiers and neighbours, but no texts. Observed items come before novel items. In file
names, "zero" means the novel items (or the test queries that clicked one), "full" means all of them, and "unnorm" means
that the rows are not normalised. Arrays are memory-mapped, never unpickled.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, load_npz, save_npz

from metaxc.arrays import Rows
from metaxc.data.dataset import ClickLog, Dataset, Texts, click_matrix
from metaxc.errors import DataError

Vectors = NDArray[np.floating[Any]]
Neighbours = NDArray[np.integer[Any]]

FILES: Mapping[str, str] = {
    "train_clicks": "Y.trn.npz",
    "zero_clicks": "Y.tst_zero.npz",
    "test_clicks": "Y.tst_full.npz",
    "train_queries": "trn_X_unnorm.npy",
    "zero_queries": "tst_X_zero_unnorm.npy",
    "test_queries": "tst_X_full_unnorm.npy",
    "observed_items": "Y_trn_unnorm.npy",
    "novel_items": "Y_zero_unnorm.npy",
    "all_items": "Y_full_unnorm.npy",
    "classifiers": "Y_trn_classifiers_unnorm.npy",
    "observed_neighbours": "Y_trn_neighbor_indices.npy",
    "observed_neighbour_scores": "Y_trn_neighbor_scores.npy",
    "novel_neighbours": "Y_zero_neighbor_indices.npy",
}
"""File name of each field of `Assets`."""

HIGHEST_SCORE = 10.0
"""Neighbour scores are between 0 and this value."""

_BLOCK = 65_536
"""Rows that are checked at a time, so that a memory-mapped array is not loaded as a whole."""


@dataclass(frozen=True)
class Assets:
    """The arrays of a folder; `FILES` lists the file of each.

    Args:
        train_clicks: (train queries, observed) clicks.
        zero_clicks: (zero-shot test queries, novel) clicks.
        test_clicks: (test queries, observed + novel) clicks.
        train_queries: (train queries, dim) vectors.
        zero_queries: (zero-shot test queries, dim) vectors.
        test_queries: (test queries, dim) vectors.
        observed_items: (observed, dim) vectors.
        novel_items: (novel, dim) vectors.
        all_items: (observed + novel, dim) vectors, in that order.
        classifiers: (observed, dim), one per observed item.
        observed_neighbours: (observed, k) rows of observed items, padded with −1.
        observed_neighbour_scores: (observed, k), 0 to 10.
        novel_neighbours: (novel, k) rows of observed items, padded with −1.
    """

    train_clicks: csr_array
    zero_clicks: csr_array
    test_clicks: csr_array
    train_queries: Vectors
    zero_queries: Vectors
    test_queries: Vectors
    observed_items: Vectors
    novel_items: Vectors
    all_items: Vectors
    classifiers: Vectors
    observed_neighbours: Neighbours
    observed_neighbour_scores: Vectors
    novel_neighbours: Neighbours

    def __post_init__(self) -> None:
        _check_shapes(self)
        for field in fields(self):
            array = getattr(self, field.name)
            _check_numbers(FILES[field.name], array.data if isinstance(array, csr_array) else array)
        observed = len(self.observed_items)
        for name in ("observed_neighbours", "novel_neighbours"):
            _check_range(FILES[name], getattr(self, name), -1, observed - 1)
        _check_range(FILES["observed_neighbour_scores"], self.observed_neighbour_scores, 0, HIGHEST_SCORE)

    def __repr__(self) -> str:
        observed, dim = self.observed_items.shape
        queries = f"{len(self.train_queries):,} + {len(self.test_queries):,} queries"
        return f"Assets({observed:,} observed + {len(self.novel_items):,} novel items, {queries}, dim {dim})"

    def to_dataset(self, name: str = "assets") -> Dataset:
        """The clicks as a data set with generated ids, which also serve as texts.

        Items are named "o0", … and "n0", …, training queries "q0", …, test queries "t0", …. The rows match those of
        `all_items`, `train_queries` and `test_queries`.
        """
        observed, novel = len(self.observed_items), len(self.novel_items)
        items = [f"o{row}" for row in range(observed)] + [f"n{row}" for row in range(novel)]
        none = csr_array((self.train_clicks.shape[0], novel), dtype=np.float32)

        def log(letter: str, clicks: csr_array) -> ClickLog:
            ids = [f"{letter}{row}" for row in range(clicks.shape[0])]
            return ClickLog(Texts(ids, ids), _to_binary(clicks))

        train = csr_array(hstack([self.train_clicks, none], format="csr"))
        mask = np.arange(observed + novel) >= observed
        return Dataset(
            Texts(items, items), log("q", train), log("t", self.test_clicks), novel=mask, name=name
        )


def read_assets(path: Path | str) -> Assets:
    """Map the arrays of a folder from disk and check their shapes and values."""
    folder = Path(path)
    missing = [name for name in FILES.values() if not (folder / name).is_file()]
    if missing:
        raise DataError(
            f"Files are missing in {folder}",
            got=f"no {', '.join(missing)}",
            expected=f"the {len(FILES)} files of the format",
            fix="check the path, or export the folder again",
        )
    return Assets(**{field: _load(folder / name) for field, name in FILES.items()})


def write_assets(
    path: Path | str,
    dataset: Dataset,
    *,
    train_queries: Vectors,
    test_queries: Vectors,
    items: Vectors,
    classifiers: Vectors,
    observed_neighbours: Neighbours,
    observed_neighbour_scores: Vectors,
    novel_neighbours: Neighbours,
) -> None:
    """Write a split data set and the vectors, classifiers and neighbours computed from it.

    Training queries without a click on an observed item are omitted.

    Args:
        path: The folder, created if it does not exist.
        dataset: A data set with novel items and a test part.
        train_queries: (train queries, dim), in the row order of the data set, like `test_queries` and `items`.
        test_queries: (test queries, dim).
        items: (items, dim).
        classifiers: (observed, dim), in the order of `dataset.observed_rows`.
        observed_neighbours: (observed, k), positions in `dataset.observed_rows`.
        observed_neighbour_scores: (observed, k), 0 to 10.
        novel_neighbours: (novel, k), positions in `dataset.observed_rows`.
    """
    if dataset.test is None:
        raise DataError("The data set has no test part", got=dataset, expected="train and test queries")
    for name, array, rows in (
        ("train_queries", train_queries, len(dataset.train)),
        ("test_queries", test_queries, len(dataset.test)),
        ("items", items, len(dataset.items)),
    ):
        if array.ndim != 2 or len(array) != rows:
            raise DataError(
                f"The number of {name} vectors does not match the data set",
                got=array.shape,
                expected=f"({rows}, dim)",
            )
    observed, novel = dataset.observed_rows, dataset.novel_rows
    train = csr_array(dataset.train.clicks[:, observed])
    clicking = np.flatnonzero(np.diff(train.indptr) > 0)
    zero = csr_array(dataset.test.clicks[:, novel])
    zero_rows: Rows = np.flatnonzero(np.diff(zero.indptr) > 0)
    order = np.concatenate([observed, novel])
    assets = Assets(
        train_clicks=csr_array(train[clicking]),
        zero_clicks=csr_array(zero[zero_rows]),
        test_clicks=csr_array(dataset.test.clicks[:, order]),
        train_queries=train_queries[clicking],
        zero_queries=test_queries[zero_rows],
        test_queries=test_queries,
        observed_items=items[observed],
        novel_items=items[novel],
        all_items=items[order],
        classifiers=classifiers,
        observed_neighbours=observed_neighbours,
        observed_neighbour_scores=observed_neighbour_scores,
        novel_neighbours=novel_neighbours,
    )
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    for field, name in FILES.items():
        array = getattr(assets, field)
        if isinstance(array, csr_array):
            save_npz(folder / name, array)
        else:
            np.save(folder / name, array, allow_pickle=False)


def _load(path: Path) -> Any:
    try:
        if path.suffix == ".npz":
            return csr_array(load_npz(path))
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        kind = "a scipy sparse matrix" if path.suffix == ".npz" else "a numpy array without Python objects"
        raise DataError(
            f"{path} cannot be read", got=error, expected=kind, fix="export the folder again"
        ) from error


def _to_binary(clicks: csr_array) -> csr_array:
    entries = clicks.tocoo()
    clicked = entries.data > 0
    rows, columns = entries.row[clicked].astype(np.int64), entries.col[clicked].astype(np.int64)
    return click_matrix(rows, columns, clicks.shape)


def _check_shapes(assets: Assets) -> None:
    if assets.observed_items.ndim != 2:
        raise DataError(
            f"{FILES['observed_items']} has the wrong shape",
            got=assets.observed_items.shape,
            expected="(observed, dim)",
        )
    observed, dim = assets.observed_items.shape
    novel, train = len(assets.novel_items), len(assets.train_queries)
    zero, test = len(assets.zero_queries), len(assets.test_queries)
    neighbours = assets.observed_neighbours.shape[1:]
    expected: dict[str, tuple[int, ...]] = {
        "train_clicks": (train, observed),
        "zero_clicks": (zero, novel),
        "test_clicks": (test, observed + novel),
        "train_queries": (train, dim),
        "zero_queries": (zero, dim),
        "test_queries": (test, dim),
        "novel_items": (novel, dim),
        "all_items": (observed + novel, dim),
        "classifiers": (observed, dim),
        "observed_neighbours": (observed, *neighbours[:1]),
        "observed_neighbour_scores": (observed, *neighbours),
        "novel_neighbours": (novel, *assets.novel_neighbours.shape[1:2]),
    }
    for field, shape in expected.items():
        got = getattr(assets, field).shape
        if got != shape or len(shape) != 2:
            raise DataError(f"{FILES[field]} has the wrong shape", got=got, expected=shape)


def _check_numbers(name: str, array: NDArray[Any]) -> None:
    integers = "neighbor_indices" in name
    if not np.issubdtype(array.dtype, np.integer if integers else np.number) and array.dtype != np.bool_:
        raise DataError(
            f"{name} has the wrong type", got=array.dtype, expected="integers" if integers else "numbers"
        )
    for start in range(0, len(array), _BLOCK):
        finite = np.isfinite(array[start : start + _BLOCK])
        if not finite.all():
            row = start + int(np.argwhere(~finite)[0][0])
            raise DataError(
                f"{name} contains NaN or infinity", got=f"first in row {row}", expected="finite numbers"
            )


def _check_range(name: str, array: NDArray[Any], low: float, high: float) -> None:
    if array.size and (array.min() < low or array.max() > high):
        raise DataError(
            f"{name} is out of range", got=f"{array.min()} to {array.max()}", expected=f"{low} to {high}"
        )
