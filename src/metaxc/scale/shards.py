"""Neighbours and ridge classifiers of more items than one machine should work on, by shards.

Inputs are files on a file system that all machines share and map into memory. The work has two rounds of tasks that do
not depend on each other; a task writes one file under a hidden name and renames it, so it is complete wherever it
exists, and a second call with the same inputs resumes. Any engine of `metaxc.scale` gives the tasks to workers.

    neighbours    search all queries in one shard of the items  →  merge the best of all shards, some queries at a time
    classifiers   XᵀX of some queries                           →  YᵀX (XᵀX + λI)⁻¹ of one shard of the items
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, load_npz

from metaxc.arrays import Floats, Rows
from metaxc.artifacts import atomic_file, json_digest, make_folder
from metaxc.classifiers import Classifiers
from metaxc.classifiers.classifiers import gram_matrix, solve_ridge
from metaxc.data.clicks import clicks_per_item
from metaxc.errors import DataError, MetaxcError
from metaxc.index.array_search import MOST_SCANNED, ArraySearch
from metaxc.scale.engines import Engine, work_here
from metaxc.selectors.nearest import drop_one

FOUND = np.dtype([("row", "<i8"), ("score", "<f4")])
"""A neighbour: its row, −1 for none, and its similarity."""

QUERY_BLOCK = 65_536
"""Queries that are searched, or rows that are read, at once."""


class Task(Protocol):
    """Makes one file of a round."""

    @property
    def output(self) -> Path:
        """The file."""
        ...

    def make(self) -> NDArray[Any]:
        """The array to write."""
        ...


def find_neighbours(
    items: str | Path,
    k: int,
    out: str | Path,
    *,
    queries: str | Path | None = None,
    shards: int = 8,
    engine: Engine = work_here,
) -> tuple[Rows, Floats]:
    """The k nearest items by inner product: (queries, k) rows, −1 for none, and similarities, best first.

    Within a shard of 100,000 items or more they are found through an index (`metaxc.index.array_search`).

    Args:
        items: A .npy file, (items, dim) float32.
        k: How many.
        out: A folder for the results of the tasks, on the file system that the machines share.
        queries: A .npy file, (queries, dim) float32; None for the items themselves, none of which is its own neighbour.
        shards: Into how many parts items and queries are divided. A worker holds one part of the items.
        engine: Where the tasks are worked on.
    """
    items, folder = Path(items).absolute(), Path(out).absolute()
    asking = items if queries is None else Path(queries).absolute()
    count, asked = (len(np.load(file, mmap_mode="r")) for file in (items, asking))
    width = k if queries is not None else k + 1  # one may be the item itself
    name = _digest([items, asking], [k, shards, queries is None])
    found = [
        SearchShard(items, asking, *span, width, folder / f"found-{name}-{number:05d}.npy")
        for number, span in enumerate(_divide(count, shards))
    ]
    merged = [
        MergeShards(
            tuple(one.output for one in found),
            *span,
            width,
            queries is None,
            folder / f"merged-{name}-{number:05d}.npy",
        )
        for number, span in enumerate(_divide(asked, shards))
    ]
    for tasks in (found, merged):
        _work(tasks, folder, engine)
    everything = np.concatenate([np.load(one.output) for one in merged])
    return everything["row"], everything["score"]


def fit_ridge(
    queries: str | Path,
    clicks: str | Path,
    out: str | Path,
    *,
    penalty: float = 1.0,
    shards: int = 8,
    engine: Engine = work_here,
) -> Classifiers:
    """The classifiers of `metaxc.classifiers.ridge`, fitted by shards.

    Args:
        queries: A .npy file, (queries, dim) float32.
        clicks: A .npz file by `scipy.sparse.save_npz`, (queries, items).
        out: A folder for the results of the tasks, on the file system that the machines share.
        penalty: λ.
        shards: Into how many parts queries and items are divided.
        engine: Where the tasks are worked on.
    """
    queries, clicks, folder = (Path(path).absolute() for path in (queries, clicks, out))
    matrix = csr_array(load_npz(clicks))
    asked = len(np.load(queries, mmap_mode="r"))
    if matrix.shape[0] != asked:
        raise DataError(
            "Queries and clicks differ in number",
            got=f"{asked:,} embeddings, {matrix.shape[0]:,} rows of clicks",
            expected="one embedding per query",
        )
    name = _digest([queries, clicks], [penalty, shards])
    grams = [
        GramShard(queries, *span, folder / f"gram-{name}-{number:05d}.npy")
        for number, span in enumerate(_divide(asked, shards))
    ]
    fitted = [
        RidgeShard(
            queries,
            clicks,
            tuple(one.output for one in grams),
            *span,
            penalty,
            folder / f"ridge-{name}-{number:05d}.npy",
        )
        for number, span in enumerate(_divide(matrix.shape[1], shards))
    ]
    for tasks in (grams, fitted):
        _work(tasks, folder, engine)
    weights = np.concatenate([np.load(one.output) for one in fitted])
    return Classifiers(weights, clicks_per_item(matrix))


@dataclass(frozen=True)
class SearchShard:
    """The best `width` of the items `start` to `stop` for every query."""

    items: Path
    queries: Path
    start: int
    stop: int
    width: int
    output: Path

    def make(self) -> NDArray[Any]:
        """(queries, width) of `FOUND`."""
        part = np.load(self.items, mmap_mode="r")[self.start : self.stop]
        search = ArraySearch(np.ascontiguousarray(part), most_scanned=MOST_SCANNED)
        queries = np.load(self.queries, mmap_mode="r")
        found = np.empty((len(queries), self.width), FOUND)
        for start in range(0, len(queries), QUERY_BLOCK):
            at = slice(start, start + QUERY_BLOCK)
            rows, scores = search.search(np.ascontiguousarray(queries[at]), self.width)
            found["row"][at], found["score"][at] = np.where(rows < 0, -1, rows + self.start), scores
        return found


@dataclass(frozen=True)
class MergeShards:
    """The best of all shards for the queries `start` to `stop`; without themselves where the queries are the items."""

    found: tuple[Path, ...]
    start: int
    stop: int
    width: int
    without_self: bool
    output: Path

    def make(self) -> NDArray[Any]:
        """(queries, width) of `FOUND`, one less without themselves."""
        parts = [np.load(file, mmap_mode="r")[self.start : self.stop] for file in self.found]
        every = np.concatenate(parts, axis=1)
        rows, scores = every["row"], every["score"]
        best = np.lexsort((rows, -scores), axis=1)[:, : self.width]  # ties by row, as in one search of all
        rows, scores = np.take_along_axis(rows, best, axis=1), np.take_along_axis(scores, best, axis=1)
        if self.without_self:
            rows, scores = drop_one(rows, scores, np.arange(self.start, self.stop))
        merged = np.empty(rows.shape, FOUND)
        merged["row"], merged["score"] = rows, scores
        return merged


@dataclass(frozen=True)
class GramShard:
    """XᵀX of the queries `start` to `stop`."""

    queries: Path
    start: int
    stop: int
    output: Path

    def make(self) -> NDArray[Any]:
        """(dim, dim) float64."""
        return gram_matrix(np.load(self.queries, mmap_mode="r")[self.start : self.stop])


@dataclass(frozen=True)
class RidgeShard:
    """The ridge classifiers of the items `start` to `stop`."""

    queries: Path
    clicks: Path
    grams: tuple[Path, ...]
    start: int
    stop: int
    penalty: float
    output: Path

    def make(self) -> NDArray[Any]:
        """(items of the shard, dim) float32."""
        part = csc_array(csc_array(load_npz(self.clicks))[:, self.start : self.stop])
        asking, place = np.unique(part.indices, return_inverse=True)
        clicks = csc_array((part.data, place, part.indptr), shape=(len(asking), part.shape[1]))
        read = np.load(self.queries, mmap_mode="r")[asking]
        sums: Floats = np.asarray(clicks.T @ np.asarray(read, dtype=np.float32), dtype=np.float32)
        gram = np.sum([np.load(file) for file in self.grams], axis=0)
        return solve_ridge(gram, sums, self.penalty)


def write_file(task: Task) -> int:
    """Make the file of a task, unless it is there already; 1, for the engine's count of what is done."""
    if not task.output.exists():
        made = task.make()
        with atomic_file(task.output) as new, new.open("wb") as file:
            np.save(file, made, allow_pickle=False)
    return 1


def _digest(files: Sequence[Path], options: Sequence[Any]) -> str:
    """Identifies inputs and options: the files of other inputs in the same folder are never taken for these."""
    facts = [file.stat() for file in files]
    return json_digest([[one.st_size, one.st_mtime_ns] for one in facts] + list(options))[:12]


def _work(tasks: Sequence[Task], folder: Path, engine: Engine) -> None:
    make_folder(folder)
    pending = [task for task in tasks if not task.output.exists()]
    done = sum(engine(write_file, pending)) if pending else 0
    if done != len(pending):
        raise MetaxcError(
            f"The engine has done {done} of {len(pending)} tasks", fix="run it again: it resumes"
        )


def _divide(count: int, parts: int) -> Iterator[tuple[int, int]]:
    """Start and end of parts that differ by one row at most; none is empty."""
    cuts = np.linspace(0, count, min(parts, max(count, 1)) + 1).round().astype(int).tolist()
    yield from pairwise(cuts)
