"""Speed and recall of the `scan` index compared with `exact`, in the same run, on one thread.

    python benchmarks/index.py --out benchmarks/results/index.json
    python benchmarks/index.py --vectors EMBEDDINGS.npy --sizes 50000

Vectors come from a seeded generator that resembles a catalog (clustered, most of the variance in few directions,
lognormal norms), or from a file with its last rows as queries and norms spread likewise by --spread. Single queries
alternate between the two indexes, so that both are affected by the same noise of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import metaxc as package
from metaxc.arrays import Floats
from metaxc.index import ExactIndex, Index, ScanIndex
from metaxc.research.code_version import git_commit
from metaxc.research.latency import time_call

QUERIES = 500
K = 10
SEED = 20_240


def generate_vectors(count: int, dim: int, spread: float, seed: int = SEED) -> tuple[Floats, Floats]:
    """Vectors (count, dim) of 2,000 clusters, and queries (QUERIES, dim) of the same clusters."""
    random = np.random.default_rng(seed)
    scale = np.arange(1, dim + 1) ** -0.35
    centres = random.standard_normal((2000, dim)) * scale
    turn = np.linalg.qr(random.standard_normal((dim, dim)))[0]

    def draw(count: int) -> NDArray[np.float64]:
        points = centres[random.integers(0, 2000, count)] + 0.8 * random.standard_normal((count, dim)) * scale
        return (points / np.linalg.norm(points, axis=1, keepdims=True)) @ turn

    queries = draw(QUERIES).astype(np.float32)
    return (draw(count) * random.lognormal(0, spread, (count, 1))).astype(np.float32), queries


def read_vectors(path: Path, count: int, spread: float) -> tuple[Floats, Floats]:
    """Rows of a .npy file in a seeded order: the first `count` as vectors, the last as queries."""
    rows = np.load(path, mmap_mode="r")
    if len(rows) < count + QUERIES:
        raise SystemExit(f"{path} has {len(rows):,} rows; {count:,} vectors and {QUERIES} queries are needed")
    random = np.random.default_rng(SEED)
    order = random.permutation(len(rows))
    lengths = random.lognormal(0, spread, (count, 1))
    vectors = np.asarray(rows[np.sort(order[:count])], np.float32) * lengths
    return vectors.astype(np.float32), np.asarray(rows[order[-QUERIES:]], np.float32)


def milliseconds(work: Callable[[], object]) -> float:
    """The wall-clock time of one call."""
    return 1000 * time_call(work)[0]


def recall(found: NDArray[np.int64], correct: NDArray[np.int64]) -> float:
    """The share of the correct keys that were found."""
    return float(
        np.mean([len(np.intersect1d(*pair)) / correct.shape[1] for pair in zip(found, correct, strict=True)])
    )


def latency(times: list[float]) -> dict[str, float]:
    """Median and 99th percentile, in ms."""
    return {
        "median_ms": round(float(np.median(times)), 4),
        "p99_ms": round(float(np.quantile(times, 0.99)), 4),
    }


def churn(index: Index, vectors: Floats, fresh: Floats) -> tuple[Index, Floats, NDArray[np.int64]]:
    """The index after 5 rounds of replacing a fifth of its vectors, and its vectors and keys afterwards."""
    random = np.random.default_rng(SEED)
    keys = np.arange(len(vectors))
    held = vectors.copy()
    fifth = len(vectors) // 5
    for turn in range(5):
        places = random.choice(len(keys), fifth, replace=False)
        index.remove(keys[places])
        keys[places] = np.arange(fifth) + len(vectors) + turn * fifth
        held[places] = fresh[turn * fifth : (turn + 1) * fifth]
        index.add(keys[places], held[places])
    return index, held, keys


def measure(vectors: Floats, queries: Floats, fresh: Floats | None) -> dict[str, Any]:
    """One row of the result."""
    count, dim = vectors.shape
    keys = np.arange(count)
    kinds: dict[str, Index] = {"exact": ExactIndex(dim), "scan": ScanIndex(dim)}
    row: dict[str, Any] = {"items": count, "dim": dim}
    for name, index in kinds.items():
        row[name] = {"build_s": round(milliseconds(lambda index=index: index.add(keys, vectors)) / 1000, 3)}
    singles: dict[str, list[float]] = {name: [] for name in kinds}
    for query in queries:
        for name, index in kinds.items():
            singles[name].append(milliseconds(lambda index=index, query=query: index.search(query[None], K)))
    answers = {}
    for name, index in kinds.items():
        row[name]["single"] = latency(singles[name])
        batch_ms = milliseconds(lambda index=index: index.search(queries, K))
        answers[name] = index.search(queries, K)[0]
        row[name]["batch_queries_per_s"] = round(1000 * len(queries) / batch_ms)
        new = np.arange(count, count + 100)
        added = [milliseconds(lambda index=index, key=key: index.add([key], vectors[:1])) for key in new]
        gone = [milliseconds(lambda index=index, key=key: index.remove([key])) for key in new]
        row[name]["add_one"], row[name]["remove_one"] = latency(added), latency(gone)
    row["single_exact_over_scan"] = round(
        row["exact"]["single"]["median_ms"] / row["scan"]["single"]["median_ms"], 2
    )
    row["recall_at_10"] = round(recall(answers["scan"], answers["exact"]), 4)
    if fresh is not None:
        row["churn"] = churn_recall(kinds["scan"], vectors, fresh, queries)
    return row


def churn_recall(index: Index, vectors: Floats, fresh: Floats, queries: Floats) -> dict[str, float]:
    """Recall@10 of the scan index after churn, and of one that is built anew with the same vectors."""
    index, held, keys = churn(index, vectors, fresh)
    exact, anew = ExactIndex(vectors.shape[1]), ScanIndex(vectors.shape[1])
    exact.add(keys, held)
    anew.add(keys, held)
    correct = exact.search(queries, K)[0]
    return {
        "recall_at_10_churned": round(recall(index.search(queries, K)[0], correct), 4),
        "recall_at_10_built_afresh": round(recall(anew.search(queries, K)[0], correct), 4),
    }


def main() -> None:
    """Run all sizes and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[3_000, 5_000, 10_000, 20_000, 50_000, 100_000]
    )
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--vectors", type=Path, help="a .npy file (rows, dim) instead of the generator")
    parser.add_argument(
        "--spread", type=float, default=0.25, help="σ of the lognormal distribution of the norms"
    )
    parser.add_argument("--no-churn", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    import faiss

    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    rows = []
    with threadpool_limits(1):
        for size in options.sizes:
            if options.vectors:
                vectors, queries = read_vectors(options.vectors, size, options.spread)
                fresh = None
            else:
                vectors, queries = generate_vectors(2 * size, options.dim, options.spread)
                vectors, fresh = vectors[:size], vectors[size:]
            rows.append(measure(vectors, queries, None if options.no_churn else fresh))
            print(json.dumps(rows[-1]), flush=True)
    result = {
        "commit": git_commit(Path(package.__file__).parent),
        "command": "python benchmarks/index.py",
        "vectors": "generated" if options.vectors is None else options.vectors.name,
        "spread": options.spread,
        "queries": QUERIES,
        "threads": 1,
        "machine": {"cpus": os.cpu_count(), "architecture": platform.machine(), "load": os.getloadavg()[0]},
        "versions": {"faiss": faiss.__version__, "numpy": np.__version__, "torch": torch.__version__},
        "rows": rows,
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
