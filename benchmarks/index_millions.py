"""The `ivf` index at 100,000 and 1,000,000 vectors, beside exact search, the `scan` index and faiss HNSW, in one run.

    python benchmarks/index_millions.py --out benchmarks/results/index_millions.json

Everything runs on one thread. It prints its progress and writes the result after
each part, so a run that is stopped leaves what it has measured. Allocations beyond `--memory-gb` fail; a part
that does not fit is recorded as failed, and the next one follows. A trial of all parts, whose figures mean nothing:

    python benchmarks/index_millions.py --sizes 5000 --dim 32 --queries 40 --lists-from 1000 --out trial.json

Vectors come from a seeded generator that resembles a catalog: 20,000 topics of very different sizes in 300 areas, most
of the variance in few directions, lognormal norms, and the novelty of an item (3 / (clicks + 3)) as last coordinate;
queries have an exposure of 0.3. Single queries alternate between the searches that are compared, so that all are
affected by the same noise of the machine. On a busy machine the wall-clock time contains waiting for a processor, so
the time that a search has used a processor is given too, and the ratios are those of processor times.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from metaxc.arrays import Floats, Keys
from metaxc.index import Index, IVFIndex, ScanIndex, ivf, load_index

K = 10
TARGETS = (0.95, 0.99)
SEED = 20_261
BLOCK = 50_000
AREAS, TOPICS, NOISE = 300, 20_000, 0.8
EXPOSURE = 0.3


class Generator:
    """Vectors and queries of the same topics.

    Args:
        dim: Length of a vector without the last coordinate.
    """

    def __init__(self, dim: int):
        self.random = np.random.default_rng(SEED)
        self.dim = dim
        self.scale = (np.arange(1, dim + 1) ** -0.35).astype(np.float32)
        areas = self._noise(AREAS)
        self.topics = areas[self.random.integers(0, AREAS, TOPICS)] + NOISE * self._noise(TOPICS)
        sizes = 1 / np.arange(1, TOPICS + 1) ** 0.7
        self.bounds = np.cumsum(sizes) / sizes.sum()
        self.turn = np.linalg.qr(self.random.standard_normal((dim, dim)))[0].astype(np.float32)

    def vectors(self, count: int) -> Floats:
        """Items (count, dim + 1) float32."""
        vectors = np.empty((count, self.dim + 1), np.float32)
        for start in range(0, count, BLOCK):
            block = vectors[start : start + BLOCK]
            lengths = self.random.lognormal(0, 0.25, (len(block), 1))
            block[:, :-1] = self._units(len(block)) * lengths
            block[:, -1] = 3 / (np.floor(self.random.lognormal(1.0, 1.2, len(block))) + 3)
        return vectors

    def queries(self, count: int) -> Floats:
        """Queries (count, dim + 1) of length 1 and an exposure."""
        return np.hstack([self._units(count), np.full((count, 1), EXPOSURE, np.float32)])

    def _noise(self, count: int) -> Floats:
        return self.random.standard_normal((count, self.dim), np.float32) * self.scale

    def _units(self, count: int) -> Floats:
        topics = np.minimum(np.searchsorted(self.bounds, self.random.random(count)), TOPICS - 1)
        points = self.topics[topics] + NOISE * self._noise(count)
        return np.asarray((points / np.linalg.norm(points, axis=1, keepdims=True)) @ self.turn, np.float32)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and processor milliseconds of one call."""
    wall, used = time.perf_counter(), time.thread_time()
    work()
    return 1000 * (time.perf_counter() - wall), 1000 * (time.thread_time() - used)


def summary(times: list[tuple[float, float]]) -> dict[str, float]:
    """Medians and the 99th percentile, in ms."""
    wall, used = np.array(times).T
    return {
        "median_ms": round(float(np.median(wall)), 4),
        "processor_median_ms": round(float(np.median(used)), 4),
        "processor_p99_ms": round(float(np.quantile(used, 0.99)), 4),
    }


def recall(found: Keys, correct: Keys) -> float:
    """The share of the correct keys that were found."""
    shared = [len(np.intersect1d(*pair)) for pair in zip(found, correct, strict=True)]
    return round(sum(shared) / correct.size, 4)


def compare_single(searches: dict[str, Callable[[Floats], object]], queries: Floats) -> dict[str, Any]:
    """Times of single queries that take turns."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in searches}
    for query in queries:
        for name, search in searches.items():
            times[name].append(timed(lambda search=search, query=query: search(query[None])))
    return {name: summary(taken) for name, taken in times.items()}


def measure_target(index: IVFIndex, queries: Floats, target: float, exact_queries: int) -> dict[str, Any]:
    """Recall and single-query times for a target, beside exact search in the same index."""
    correct = index.search_exactly(queries, K)[0]
    tune_s = timed(lambda: index.tune(recall=target))[1] / 1000
    searches = {"ivf": lambda q: index.search(q, K), "exact": lambda q: index.search_exactly(q, K)}
    times = compare_single(searches, queries[:exact_queries])
    ratio = times["exact"]["processor_median_ms"] / times["ivf"]["processor_median_ms"]
    times["ivf"] = compare_single({"ivf": searches["ivf"]}, queries)["ivf"]
    return {
        "recall_at_10": recall(index.search(queries, K)[0], correct),
        "recall_at_10_measured_when_tuned": index.measured_recall,
        "share_scanned": round(index.plan.shares[0], 5),
        "shortlist": index.plan.depth(K),
        "tune_processor_s": round(tune_s, 2),
        **times,
        "exact_over_ivf": round(ratio, 1),
    }


def recall_by_exposure(index: IVFIndex, queries: Floats) -> dict[str, float]:
    """Recall where all queries have one exposure."""
    result = {}
    for exposure in (-3.0, 0.0, 1.0, 5.0):
        changed = queries.copy()
        changed[:, -1] = exposure
        result[str(exposure)] = recall(index.search(changed, K)[0], index.search_exactly(changed, K)[0])
    return result


def measure_inserts(index: IVFIndex, fresh: Floats) -> dict[str, float]:
    """Vectors per second in batches of 1,000; they are removed again."""
    first = 10_000_000
    keys = np.arange(first, first + len(fresh))

    def insert() -> None:
        for start in range(0, len(fresh), 1000):
            index.add(keys[start : start + 1000], fresh[start : start + 1000])

    wall, used = timed(insert)
    index.remove(keys)
    index.wait()
    return {
        "per_s": round(1000 * len(fresh) / wall),
        "per_processor_s": round(1000 * len(fresh) / used),
    }


def measure_churn(
    index: IVFIndex, generator: Generator, vectors: Floats, queries: Floats
) -> dict[str, float]:
    """Recall after 5 rounds of replacing a fifth of the vectors, and that of an index built afresh."""
    random = np.random.default_rng(SEED)
    keys, fifth = np.arange(len(vectors)), len(vectors) // 5
    for turn in range(5):
        places = random.choice(len(keys), fifth, replace=False)
        index.remove(keys[places])
        keys[places] = np.arange(fifth) + len(vectors) + turn * fifth
        vectors[places] = generator.vectors(fifth)
        index.add(keys[places], vectors[places])
    index.wait()
    fresh = IVFIndex(vectors.shape[1], recall=index.plan.target)
    fresh.add(keys, vectors)
    correct = index.search_exactly(queries, K)[0]
    return {
        "recall_at_10_churned": recall(index.search(queries, K)[0], correct),
        "recall_at_10_built_afresh": recall(fresh.search(queries, K)[0], correct),
    }


def measure_load(index: IVFIndex, memory_gb: float) -> dict[str, float]:
    """Seconds to save the index and to load it in a new process, and the memory that it has there."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        saved = timed(lambda: index.save(path, {}))[0] / 1000
        command = [sys.executable, __file__, "--memory-gb", str(memory_gb), "--load", str(path)]
        loaded = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"save_s": round(saved, 2), **loaded}


def load(folder: Path) -> None:
    """Load an index and print what that took."""
    import faiss  # noqa: F401  so that its own memory is not counted

    before = resident_bytes()
    loaded: list[Index] = []
    wall, used = timed(lambda: loaded.append(load_index(folder)[0]))
    index = loaded[0]
    vectors = len(index) * index.dim * 4
    beyond = (resident_bytes() - before - vectors) / len(index)
    result = {"load_s": wall / 1000, "load_processor_s": used / 1000, "bytes_per_item_beyond_vectors": beyond}
    print(json.dumps({name: round(value, 2) for name, value in result.items()}))


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure_hnsw(vectors: Floats, queries: Floats, index: IVFIndex) -> dict[str, Any]:
    """faiss HNSW32 by inner product: time to build, and single queries at the smallest efSearch for each target."""
    import faiss

    graph = faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    wall, used = timed(lambda: graph.add(vectors))
    correct = index.search_exactly(queries, K)[0]
    result: dict[str, Any] = {"build_s": round(wall / 1000, 1), "build_processor_s": round(used / 1000, 1)}
    for target in TARGETS:
        for depth in (16, 32, 64, 128, 256, 512, 1024, 2048):
            graph.hnsw.efSearch = depth
            found = recall(graph.search(queries, K)[1], correct)
            if found >= target:
                break
        times = compare_single({"hnsw": lambda q: graph.search(q, K)}, queries)["hnsw"]
        result[str(target)] = {"efSearch": depth, "recall_at_10": found, **times}
    return result


def measure_scan(vectors: Floats, queries: Floats, index: IVFIndex) -> dict[str, Any]:
    """The `scan` index: time to build, recall, and single queries beside those of `ivf` as it is tuned now."""
    scan = ScanIndex(vectors.shape[1])
    wall, used = timed(lambda: scan.add(np.arange(len(vectors)), vectors))
    searches = {"scan": lambda q: scan.search(q, K), "ivf": lambda q: index.search(q, K)}
    times = compare_single(searches, queries)
    return {
        "build_s": round(wall / 1000, 1),
        "build_processor_s": round(used / 1000, 1),
        "recall_at_10": recall(scan.search(queries, K)[0], index.search_exactly(queries, K)[0]),
        "ivf_target": index.plan.target,
        **times,
    }


class Report:
    """The rows of the result, written after each part so that a run that is stopped leaves what it has measured.

    Args:
        out: The result file; None only prints.
    """

    def __init__(self, out: Path | None):
        self.out, self.rows = out, list[dict[str, Any]]()
        self.run = describe_run()
        self.started = time.perf_counter()

    def start_row(self, row: dict[str, Any]) -> None:
        """Begin the row of a size."""
        self.rows.append(row)
        self.say(f"{row['items']:,} vectors of {row['dim']} dimensions")

    def part(self, name: str, work: Callable[[], dict[str, Any]]) -> bool:
        """Measure one part of the last row; False if there was not enough memory for it."""
        self.say(f"  {name} …")
        try:
            measured = work()
        except (MemoryError, RuntimeError, subprocess.CalledProcessError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(
                error
            ):  # torch has no error of its own for it
                raise
            measured = {"failed": f"{type(error).__name__}: {error}"}
        self.rows[-1][name] = measured
        self.say(f"  {name}: {json.dumps(measured)}")
        if self.out:
            result = self.run | {"rows": self.rows}
            unfinished = self.out.with_name(self.out.name + ".part")
            unfinished.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
            unfinished.replace(self.out)
        return "failed" not in measured

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        print(f"{time.perf_counter() - self.started:8.1f} s  {text}", flush=True)


def measure(count: int, options: argparse.Namespace, report: Report) -> None:
    """One row of the result, part by part."""
    report.start_row({"items": count, "dim": options.dim + 1})
    generator = Generator(options.dim)
    queries = generator.queries(options.queries)
    kept: dict[str, Floats] = {}
    index = IVFIndex(options.dim + 1)

    def build() -> dict[str, Any]:
        kept["vectors"] = generator.vectors(count)
        wall, used = timed(lambda: index.add(np.arange(count), kept["vectors"]))
        return {"s": round(wall / 1000, 1), "processor_s": round(used / 1000, 1), "index": repr(index)}

    if not report.part("build", build):
        return
    for target in TARGETS:
        report.part(
            f"target_{target}",
            lambda target=target: measure_target(index, queries, target, options.exact_queries),
        )
    report.part("scan", lambda: measure_scan(kept["vectors"], queries, index))
    index.tune(recall=TARGETS[0])
    report.part("recall_by_exposure", lambda: recall_by_exposure(index, queries[:100]))
    report.part("load", lambda: measure_load(index, options.memory_gb))
    if count <= options.hnsw_up_to:
        report.part("hnsw32", lambda: measure_hnsw(kept["vectors"], queries, index))
    report.part("insert", lambda: measure_inserts(index, generator.vectors(min(10_000, count // 10))))
    if count <= options.churn_up_to:
        report.part("churn", lambda: measure_churn(index, generator, kept["vectors"], queries))


def limit_memory(gigabytes: float) -> None:
    """Let allocations beyond a limit fail in this process, instead of taking the memory of others."""
    limit = int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--exact-queries", type=int, default=30)
    parser.add_argument("--hnsw-up-to", type=int, default=1_000_000, help="largest size for HNSW")
    parser.add_argument("--churn-up-to", type=int, default=1_000_000, help="largest size for churn")
    parser.add_argument(
        "--lists-from", type=int, default=ivf.MIN_VECTORS, help="smallest size for lists, for a trial"
    )
    parser.add_argument("--memory-gb", type=float, default=12.0, help="most memory that may be allocated")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    import faiss

    limit_memory(options.memory_gb)
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    with threadpool_limits(1):
        if options.load:
            load(options.load)
            return
        ivf.MIN_VECTORS = options.lists_from
        report = Report(options.out)
        for size in options.sizes:
            measure(size, options, report)


def describe_run() -> dict[str, Any]:
    """Commit, command, seed, machine and versions."""
    import faiss

    root = Path(__file__).parent
    git = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return {
        "commit": subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip(),
        "command": shlex.join(["python", "benchmarks/index_millions.py", *sys.argv[1:]]),
        "seed": SEED,
        "threads": 1,
        "machine": {"cpus": os.cpu_count(), "architecture": platform.machine(), "load": os.getloadavg()[0]},
        "versions": {"faiss": faiss.__version__, "numpy": np.__version__, "torch": torch.__version__},
    }


if __name__ == "__main__":
    main()
