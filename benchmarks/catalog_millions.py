"""A live catalog of a model with very many items: how long it takes to open, its memory, and what new items cost.

    python benchmarks/scale.py --items 1e6 --threads 2 --keep models
    python benchmarks/catalog_millions.py models/model-1000000 --out benchmarks/results/catalog_millions.json

The catalog is created and closed in one process and opened in another, as a service does after a restart. Everything
runs on one thread. On a busy machine wall-clock times contain waiting for a processor, so processor times are given
beside them. "Beyond vectors" is what the process has taken from the system between loading the model and the first
answer of the catalog, less the vectors of the index. A new item is represented from its embedding (select and
generate), or goes the whole way from its text to the first search that finds it, durably.

The peer is what one would do without this project: `SentenceTransformer.encode` with all-MiniLM-L6-v2, and a faiss
HNSW32 index, which has as many vectors as --peer-vectors says, in memory and not durable.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import metaxc as package
from metaxc import Catalog, Emmett, NewItem
from metaxc.research.code_version import git_commit

SINGLE, BATCH = 200, 1_000


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def timed(work: Any) -> tuple[Any, dict[str, float]]:
    """What a call returns, and its seconds of wall-clock and processor time."""
    result, wall, used = _clocked(work)
    return result, {"seconds": round(wall, 3), "processor_seconds": round(used, 3)}


def _clocked(work: Any) -> tuple[Any, float, float]:
    wall, used = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - used


def medians(works: list[Any]) -> dict[str, float]:
    """Median and 99th percentile of calls, in milliseconds."""
    wall, used = 1000 * np.array([_clocked(work)[1:] for work in works]).T
    return {
        "median_ms": round(float(np.median(wall)), 3),
        "processor_median_ms": round(float(np.median(used)), 3),
        "p99_ms": round(float(np.quantile(wall, 0.99)), 3),
    }


def create(model_folder: Path, folder: Path) -> dict[str, Any]:
    """Create a catalog of all items of the model, and close it."""
    model = Emmett.load(model_folder)
    catalog, created = timed(lambda: Catalog.create(folder, model))
    _, closed = timed(catalog.close)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"create": created, "close": closed, "disk_bytes_per_item": round(size / len(model.items))}


def serve(model_folder: Path, folder: Path) -> dict[str, Any]:
    """Open the catalog with its saved index, search, and add items."""
    import faiss  # noqa: F401  so that its own memory is not counted

    start = resident_bytes()
    model, loaded = timed(lambda: Emmett.load(model_folder))
    with_model = resident_bytes()
    texts = model.items.texts
    words = np.random.default_rng(0)

    def new_text() -> str:
        """Words of two items, so that no item has it."""
        first, second = (texts[row].split() for row in words.integers(0, len(texts), 2))
        return " ".join([*first[: len(first) // 2 + 1], *second[len(second) // 2 :]])

    queries = [new_text() for _ in range(SINGLE)]
    catalog, opened = timed(lambda: Catalog.open(folder, model))
    _, first_answer = timed(lambda: catalog.search(queries[:1], 10))
    with_catalog = resident_bytes()
    count, dim = len(catalog), catalog.follower.index.dim
    result: dict[str, Any] = {
        "items": count,
        "dim": dim,
        "index": repr(catalog.follower.index),
        "reason": catalog.about().index_reason,
        "load_model": loaded,
        "open": opened,
        "first_answer": first_answer,
        "model_bytes_per_item": round((with_model - start) / count),
        "bytes_per_item_beyond_vectors": round((with_catalog - with_model) / count - 4 * dim),
    }
    result["search"] = medians([lambda q=q: catalog.search([q], 10) for q in queries])
    vectors = model.encode_queries(queries)
    index = catalog.follower.index
    result["index_search"] = medians([lambda v=v: index.search(v[None], 10) for v in vectors])
    result["index_search_exact"] = medians(
        [lambda v=v: index.search_exactly(v[None], 10) for v in vectors[:20]]
    )
    found, right = index.search(vectors, 10)[0], index.search_exactly(vectors, 10)[0]
    result["index_recall_at_10"] = float(
        np.mean([np.isin(*pair).mean() for pair in zip(right, found, strict=True)])
    )
    embeddings = model.encoder.encode_items([new_text() for _ in range(SINGLE)])
    _, result["represent_first"] = timed(lambda: model.represent(embeddings[:1]))
    result["represent"] = medians([lambda e=e: model.represent(e[None]) for e in embeddings])
    items = [NewItem(f"new-{number}", new_text()) for number in range(SINGLE + 5 * BATCH)]

    def add_and_find(item: NewItem) -> None:
        catalog.add([item])
        assert catalog.search([item.text], 10)

    result["text_to_searchable"] = medians([lambda item=item: add_and_find(item) for item in items[:SINGLE]])
    _, added = timed(lambda: [catalog.add(items[at : at + BATCH]) for at in range(SINGLE, len(items), BATCH)])
    result["add_per_second"] = round((len(items) - SINGLE) / added["seconds"])
    _, inserted = timed(
        lambda: [
            index.add(np.arange(2 * 10**9 + at, 2 * 10**9 + at + BATCH), np.repeat(vectors, 5, axis=0))
            for at in range(0, 10 * BATCH, BATCH)
        ]
    )
    result["index_insert_per_second"] = round(10 * BATCH / inserted["seconds"])
    result["click"] = medians([lambda n=n: catalog.click(f"new-{n}", queries[n]) for n in range(20)])
    catalog.close()
    return result


def peer(count: int) -> dict[str, Any]:
    """A new item from its text to searchable: SentenceTransformer.encode and faiss HNSW32."""
    import faiss
    from sentence_transformers import SentenceTransformer

    from metaxc.encoders import Pretrained

    encoder = SentenceTransformer(str(Pretrained().folder), device="cpu")
    random = np.random.default_rng(0)
    centres = random.standard_normal((1 + count // 50, 384), np.float32)
    vectors = centres[random.integers(0, len(centres), count)] + random.standard_normal(
        (count, 384), np.float32
    )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    graph = faiss.IndexHNSWFlat(384, 32, faiss.METRIC_INNER_PRODUCT)
    _, built = timed(lambda: graph.add(vectors))

    def add_and_find(text: str) -> None:
        vector = encoder.encode([text], normalize_embeddings=True, show_progress_bar=False)
        graph.add(vector)
        graph.search(vector, 10)

    texts = [f"a new item with the number {number} and a few words" for number in range(SINGLE)]
    add_and_find(texts[0])
    encode = medians([lambda t=t: encoder.encode([t], show_progress_bar=False) for t in texts])
    return {
        "vectors": count,
        "build": built,
        "encode": encode,
        "text_to_searchable": medians([lambda t=t: add_and_find(t) for t in texts]),
    }


PARTS = {"create": create, "serve": serve}


def run_part(*arguments: object) -> dict[str, Any]:
    """A part in a process of its own."""
    command = [sys.executable, __file__, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="folder of a model")
    parser.add_argument("--peer-vectors", type=int, default=100_000)
    parser.add_argument("--work", type=Path, help="folder for the catalog; by default a temporary one")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", choices=[*PARTS, "peer"], help=argparse.SUPPRESS)
    parser.add_argument("--catalog", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        import faiss

        torch.set_num_threads(1)
        faiss.omp_set_num_threads(1)
        with threadpool_limits(1):
            part = options.part
            done = (
                peer(options.peer_vectors) if part == "peer" else PARTS[part](options.model, options.catalog)
            )
        print(json.dumps(done))
        return
    result: dict[str, Any] = {
        "commit": git_commit(Path(package.__file__).parent),
        "command": f"python benchmarks/catalog_millions.py models/{options.model.name} "
        f"--peer-vectors {options.peer_vectors}",
        "seed": 0,
        "threads": 1,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
    }
    work = Path(tempfile.mkdtemp(dir=options.work))
    try:
        for part in (*PARTS, "peer"):
            given = [options.model, "--part", part, "--catalog", work / "catalog"]
            result[part] = run_part(*given, "--peer-vectors", options.peer_vectors)
            print(json.dumps({part: result[part]}, indent=2), flush=True)
            if options.out:
                options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
