"""Searches with filters compared with searches without, in the same catalog and the same run, on one thread.

    python benchmarks/filters.py --out benchmarks/results/filters.json

A catalog of 100,000 items gets generated vectors and fields; single queries alternate between no filter and filters
that leave from 0.1 % to all of the items, so that all are affected by the same noise of the machine. Encoding the
query is not measured: it is the same in all of them. Every answer is compared with the exact one over the items that
pass. Two things are promised: the median with a filter is at most twice the one without, and no answer is shorter
than it could be. Filters recur, as in a shop; what one costs that was never used before stands in `first_use`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from index import generate_vectors, latency, milliseconds
from threadpoolctl import threadpool_limits

import metaxc as package
from metaxc.arrays import Floats
from metaxc.catalog import Catalog, NewItem
from metaxc.catalog.item_filters import parse_filter
from metaxc.catalog.records import ItemRow
from metaxc.catalog.schema import ITEMS
from metaxc.classifiers import ridge
from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.encoders import unit_rows
from metaxc.generators import Combine
from metaxc.research.code_version import git_commit

K = 10
SEED = 20_240
MOST_RATIO = 2.0
BLOCK = 5_000


class Noise:
    """An encoder that gives every text a vector by chance: here only stored vectors matter."""

    kind = "noise"

    def __init__(self, dim: int):
        self.dim, self.fingerprint = dim, f"noise {dim}"

    def encode_items(self, texts: Sequence[str]) -> Floats:
        """(n, dim) float32, unit rows."""
        return unit_rows(np.random.default_rng(SEED).standard_normal((len(texts), self.dim)))

    encode_queries = encode_items


def small_model(dim: int) -> Emmett:
    """A model of twenty items, whose space the catalog has."""
    items, queries = ({f"{name}{n}": f"{name} {n}" for n in range(20)} for name in ("item", "query"))
    clicks = [(f"query{n}", f"item{n}") for n in range(20)]
    data, encoder = Dataset.of(items, queries, clicks), Noise(dim)
    classifiers = ridge(encoder.encode_queries(data.train.queries.texts), data.train.clicks)
    observed = np.arange(20)
    embeddings = encoder.encode_items(data.items.texts)
    return Emmett(encoder, classifiers, embeddings, Combine(0.5, 0.1), data.items, observed)


def fields_of(number: int, share: float) -> dict[str, Any]:
    """Five fields, one of them uniform in [0, 1)."""
    return {
        "share": share,
        "in_stock": number % 3 != 0,
        "brand": f"brand {number % 200}",
        "sizes": [f"size {size}" for size in range(number % 4 + 1)],
        "stock": number % 50,
    }


def fill(catalog: Catalog, vectors: Floats) -> None:
    """Write an item for each vector, as the catalog itself does."""
    shares, dim = np.random.default_rng(SEED).random(len(vectors)), catalog.store.dim
    for start in range(0, len(vectors), BLOCK):
        with catalog.store.transaction() as transaction:
            first = transaction.new_key(ITEMS)
            for place in range(start, min(start + BLOCK, len(vectors))):
                tags = (f"tag {place % 10}", f"tag {10 + place % 7}")
                item = NewItem(f"n{place}", f"number {place}", tags, fields_of(place, float(shares[place])))
                row = ItemRow.novel(item, vectors[place, :dim], 0.0)
                values = {
                    "key": first + place - start,
                    "sequence": transaction.sequence,
                    "vector": vectors[place],
                }
                transaction.put(ITEMS, ItemRow(**{**vars(row), **values}).values())
    catalog._catch_up_index()


FILTERS: dict[str, Any] = {
    **{
        f"share < {share:g}": {"field": "share", "lt": share}
        for share in (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.9)
    },
    "every item": {"field": "share", "gte": 0},
    "a tag (10 %)": {"tag": "tag 3"},
    "a brand of 200": {"field": "brand", "eq": "brand 7"},
    "in stock, below 0.5, not three brands, one of two sizes": {
        "and": [
            {"field": "in_stock", "eq": True},
            {"field": "share", "lt": 0.5},
            {"not": {"field": "brand", "in": ["brand 1", "brand 2", "brand 3"]}},
            {"or": [{"field": "sizes", "eq": "size 2"}, {"field": "sizes", "eq": "size 3"}]},
        ]
    },
}


def measure(catalog: Catalog, queries: Floats) -> dict[str, Any]:
    """Latency of each filter and of none, and what the answers miss."""
    index, filters = catalog.follower.index, catalog._filters
    load_ms = milliseconds(filters.load)
    keys = np.array([row[0] for row in catalog.store.fetch_all("SELECT key FROM items ORDER BY key")])
    vectors = np.frombuffer(
        b"".join(row[0] for row in catalog.store.fetch_all("SELECT vector FROM items ORDER BY key")), "<f4"
    ).reshape(len(keys), -1)
    allowed = {name: np.sort(filters.select(parse_filter(given))[0]) for name, given in FILTERS.items()}
    times: dict[str, list[float]] = {"none": [], **{name: [] for name in FILTERS}}
    short, found, wanted = dict.fromkeys(times, 0), dict.fromkeys(times, 0), dict.fromkeys(times, 0)
    ids = dict(catalog.store.fetch_all("SELECT id, key FROM items"))
    processor: dict[str, list[float]] = {name: [] for name in times}
    for query in queries:
        for name, own in times.items():
            given, before = FILTERS.get(name), time.thread_time()
            own.append(
                milliseconds(lambda query=query, given=given: catalog.search(query[None], K, filter=given))
            )
            processor[name].append(1000 * (time.thread_time() - before))
    for query in queries[:50]:
        scores = vectors @ query
        for name in times:
            possible = keys if name == "none" else allowed[name]
            best = possible[np.argsort(-scores[np.searchsorted(keys, possible)], kind="stable")[:K]]
            hits = {ids[hit.id] for hit in catalog.search(query[None], K, filter=FILTERS.get(name))[0]}
            short[name] += len(hits) < min(K, len(possible))
            found[name] += len(hits & set(best.tolist()))
            wanted[name] += len(best)
    base, processor_base = float(np.median(times["none"])), float(np.median(processor["none"]))
    rows = [
        {
            "filter": name,
            "items": len(keys) if name == "none" else len(allowed[name]),
            **latency(own),
            "ratio": round(float(np.median(own)) / base, 2),
            "processor_ms": round(float(np.median(processor[name])), 4),
            "processor_ratio": round(float(np.median(processor[name])) / processor_base, 2),
            f"recall@{K}": round(found[name] / wanted[name], 4),
            "short_answers": int(short[name]),
        }
        for name, own in times.items()
    ]
    return {"index": index.kind, "load_ms": round(load_ms), "rows": rows, **measure_changes(catalog, queries)}


def measure_changes(catalog: Catalog, queries: Floats) -> dict[str, Any]:
    """What a search costs after a change of one item, and with a filter that nobody has used before; and what SQLite
    would need to evaluate a filter."""
    given, after = FILTERS["share < 0.01"], []
    for turn, query in enumerate(queries[:100]):
        catalog.update(f"n{turn}", set_fields={"stock": -turn - 1})
        after.append(milliseconds(lambda query=query: catalog.search(query[None], K, filter=given)))
    first = {}
    for name, one in FILTERS.items():
        timed = []
        for query in queries[:20]:
            catalog._filters._columns._kept.clear()
            timed.append(
                milliseconds(lambda query=query, one=one: catalog.search(query[None], K, filter=one))
            )
        first[name] = latency(timed)
    statement = "SELECT key FROM items WHERE json_extract(fields, '$.share') < 0.01"
    sqlite = [milliseconds(lambda: catalog.store.fetch_all(statement)) for _ in range(5)]
    return {
        "search_after_a_change": latency(after),
        "first_use": first,
        "sqlite_json_filter": latency(sqlite),
    }


def find_problems(measured: dict[str, Any]) -> list[str]:
    """The promises that are broken."""
    tests: list[tuple[Callable[[dict[str, Any]], bool], str]] = [
        (lambda row: row["ratio"] > MOST_RATIO, f"takes more than {MOST_RATIO:g} times as long as no filter"),
        (lambda row: row["short_answers"] > 0, "has answers that are too short"),
    ]
    return [f"{row['filter']} {told}" for row in measured["rows"] for test, told in tests if test(row)]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    vectors, queries = generate_vectors(options.items, options.dim, 0.25)
    vectors = np.concatenate([vectors, np.ones((len(vectors), 1), np.float32)], axis=1)
    queries = np.concatenate([queries, np.zeros((len(queries), 1), np.float32)], axis=1)[: options.queries]
    with threadpool_limits(1), tempfile.TemporaryDirectory() as place:
        with Catalog.create(Path(place) / "catalog", small_model(options.dim)) as catalog:
            fill(catalog, vectors)
        with Catalog.open(Path(place) / "catalog", catalog.model) as catalog:
            measured = measure(catalog, queries)
    arguments = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    result = {
        **measured,
        "problems": find_problems(measured),
        "items": options.items,
        "dim": options.dim,
        "queries": options.queries,
        "seed": SEED,
        "threads": 1,
        "commit": git_commit(Path(package.__file__).parent),
        "command": shlex.join(["python", "benchmarks/filters.py", *arguments]),
        "machine": {"cpus": os.cpu_count(), "architecture": platform.machine(), "load": os.getloadavg()[0]},
    }
    text = json.dumps(result, indent=1, ensure_ascii=False)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    raise SystemExit(bool(result["problems"]))


if __name__ == "__main__":
    main()
