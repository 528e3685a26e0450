"""A new item among very many: select and generate, without the encoding of its text, on one thread.

    python benchmarks/new_item.py --out benchmarks/results/new_item.json

The observed items are the vectors of `index_millions.py` (topics of very different sizes in areas), scaled to length 1,
with random classifiers. A new item is another vector of the same topics. It goes the way of `Emmett.represent`: the
selector finds its ten nearest observed items through the index, the combine makes a meta-classifier of their
classifiers. Processor times are given beside wall-clock times, which on a busy machine contain waiting.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from catalog_millions import medians, timed
from index_millions import SEED, Generator
from threadpoolctl import threadpool_limits

import metaxc as package
from metaxc.classifiers import FewShotFitter
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.emmett import Calibration
from metaxc.emmett.neighbour_pool import NeighbourPool, TrainedPool
from metaxc.emmett.pipeline import MetaClassifierPipeline
from metaxc.generators import Combine
from metaxc.research.code_version import git_commit
from metaxc.selectors import NearestSelector

NEIGHBOURS, NEW_ITEMS = 10, 500


def measure(items: int, dim: int) -> dict[str, Any]:
    """Time and recall of new items among so many observed ones."""
    generator = Generator(dim)
    embeddings = normalize_rows(generator.vectors(items)[:, :-1])
    new = normalize_rows(generator.vectors(NEW_ITEMS)[:, :-1])
    vectors = np.random.default_rng(SEED).permutation(embeddings)
    selector = NearestSelector(embeddings)
    pool = NeighbourPool(TrainedPool(selector, vectors, None, False))
    fitter = FewShotFitter(embeddings)
    pipeline = MetaClassifierPipeline(pool, Combine(1.0, 10.0), Calibration(), NEIGHBOURS, 3.0, fitter)
    _, built = timed(lambda: selector.select(new[:1], NEIGHBOURS))
    stages = [dict[str, float]() for _ in new]

    def represent(row: int) -> None:
        pipeline.run(new[row : row + 1], seconds=stages[row])

    return {
        "items": items,
        "dim": dim,
        "build_index": built,
        "represent": medians([lambda row=row: represent(row) for row in range(len(new))]),
        "select_median_ms": round(1e3 * float(np.median([one["select"] for one in stages])), 3),
        "generate_median_ms": round(1e3 * float(np.median([one["generate"] for one in stages])), 3),
        "neighbour_recall_at_10": selector.items.measure_recall(),
    }


def main() -> None:
    """Measure each size and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=float, nargs="+", default=[1e5, 1e6])
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    import faiss

    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    result: dict[str, Any] = {
        "commit": git_commit(Path(package.__file__).parent),
        "command": shlex.join(["python", "benchmarks/new_item.py", *sys.argv[1:]]),
        "seed": SEED,
        "threads": 1,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
        "sizes": [],
    }
    with threadpool_limits(1):
        for items in options.items:
            started = time.perf_counter()
            result["sizes"].append(measure(int(items), options.dim))
            print(
                json.dumps(result["sizes"][-1], indent=1),
                f"{time.perf_counter() - started:.0f} s",
                flush=True,
            )
            if options.out:
                options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
