"""What newer clicks bring: not used, learnt by the query side alone, given to a live catalog, or by a full training.

    python benchmarks/keep_items.py DATA... --size fast --work FOLDER --out benchmarks/results/keep_items.json

The click events of a data set are cut by time (`benchmarks/time_parts.py`): a model is trained on the first 70 %, the
next 15 % come later, and the queries of the last 15 % are asked still later, among all items. Every row ranks the same
items for the same queries; items that nobody had clicked until then are novel.

    as is                  the model as it was; items that came later are novel items to it
    keep items             `metaxc train --keep-items`: its query side trained on all clicks, no item vector changed
    live                   the model as it was, in a live catalog that got the later items and clicks as they came
    live, keep items       that catalog after a switch to the model of "keep items": no row is written again
    full training          a new model of all clicks

P@1 and R@10 are over all test queries, novel R@10 over those that clicked a novel item, all in percent; differences to
"full training" are paired by query, with their 95 % interval. Seconds are wall-clock on whatever else the machine did.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pseudo_novel import merge_results
from time_parts import TimeParts, events, first_appearance, read_parts

import metaxc as package
from metaxc import EmbeddingCache, Emmett, Irene
from metaxc.arrays import Floats, Mask, Rows
from metaxc.catalog import Catalog, NewClick, NewItem
from metaxc.catalog.model_switch import ModelSwitch
from metaxc.catalog.sync.catalog_changes import read_changes
from metaxc.data import Dataset
from metaxc.evaluation import Evaluation, evaluate
from metaxc.evaluation.intervals import paired_interval
from metaxc.evaluation.searches import encode_test_queries_once, item_vectors
from metaxc.index.topk import top_k
from metaxc.irene import SIZES
from metaxc.irene.query_retraining import retrain_queries
from metaxc.research.code_version import git_commit

CLICKS_AT_ONCE = 256
LAST = "full training"


def rank(model: Emmett, vectors: Floats, dataset: Dataset) -> Evaluation:
    """How well the queries of a model find what was clicked, among items with these vectors."""
    encode = encode_test_queries_once(model.encode_queries, dataset)

    def search(queries: list[str], k: int, among: Mask | None) -> Rows:
        return top_k(encode(queries), vectors, k, among)[0]

    return evaluate(search, dataset, settings=("generalized",))


def live(catalog: Catalog, parts: TimeParts) -> None:
    """Give a catalog the later items and clicks in the order of time."""
    items, log = parts.after.items, parts.later
    known, appeared = set(parts.before.items.ids), first_appearance(items, parts.after.train)
    waiting = [row for row in np.argsort(appeared, kind="stable").tolist() if items.ids[row] not in known]
    queries, clicked, times = events(log)

    def add(rows: list[int]) -> None:
        for start in range(0, len(rows), CLICKS_AT_ONCE):
            block = rows[start : start + CLICKS_AT_ONCE]
            catalog.add([NewItem(items.ids[row], items.texts[row]) for row in block])

    for start in range(0, len(queries), CLICKS_AT_ONCE):
        part = slice(start, start + CLICKS_AT_ONCE)
        until = times[part][-1]
        there = [row for row in waiting if appeared[row] <= until]
        waiting = waiting[len(there) :]
        add(there)
        clicks = zip(queries[part].tolist(), clicked[part].tolist(), times[part].tolist(), strict=True)
        catalog.clicks(
            [NewClick(items.ids[item], log.queries.texts[query], at) for query, item, at in clicks]
        )
    add(waiting)


def catalog_vectors(catalog: Catalog, dataset: Dataset) -> Floats:
    """(items, dim + 1) what a catalog ranks, in the order of a data set's items."""
    rows = read_changes(catalog.store, 0, 0, len(dataset.items) + 1).rows
    by_id = {row.id: row.vector for row in rows}
    return np.stack([by_id[id] for id in dataset.items.ids])


def switch(catalog: Catalog, model: Emmett) -> Catalog:
    """The catalog, moved to another model."""
    moving = ModelSwitch(catalog, model)
    moving.build()
    new = moving.finish()
    catalog.close()
    moving.remove_unused()
    return new


class Study:
    """The rows of one data set.

    Args:
        parts: Its history.
        work: A folder for models, which are used again, and for the catalog.
        size: As in `metaxc train --size`.
        cache: Keeps embeddings.
    """

    def __init__(self, parts: TimeParts, work: Path, size: str, cache: EmbeddingCache):
        self.parts, self.work, self.size, self.cache = parts, work, size, cache
        self.rows: dict[str, Evaluation] = {}
        self.seconds: dict[str, float] = {}

    def run(self) -> dict[str, Any]:
        """Every row, and what it took."""
        data = self.parts.after
        before, after = self._train("before", self.parts.before), self._train("after", data)
        self._note("as is", rank(before, item_vectors(before, data), data))
        kept = self._timed("keep items", lambda: retrain_queries(before, data, report=print))
        assert np.array_equal(kept.vectors[: len(before.items)], before.vectors)
        self._note("keep items", rank(kept, item_vectors(kept, data), data))
        folder = self.work / "catalog"
        shutil.rmtree(folder, ignore_errors=True)
        catalog = Catalog.create(folder, before)
        self._timed("live", lambda: live(catalog, self.parts))
        vectors = catalog_vectors(catalog, data)
        self._note("live", rank(before, vectors, data))
        catalog = self._timed("switch, keep items", lambda: switch(catalog, kept))
        assert np.array_equal(catalog_vectors(catalog, data), vectors)
        self._note("live, keep items", rank(kept, vectors, data))
        self._timed("switch, full training", lambda: switch(catalog, after)).close()
        self._note(LAST, rank(after, item_vectors(after, data), data))
        return {
            "queries": self.rows[LAST].counts["generalized"]["queries"],
            "novel items": int(data.novel_mask.sum()),
            "later clicks": int(self.parts.later.event_count),
            "chosen": kept.about["keeps_items"]["chosen"],
            "new queries": kept.about["keeps_items"]["new_queries"],
            "seconds": {name: round(seconds, 1) for name, seconds in self.seconds.items()},
            "rows": {name: self._figures(found) for name, found in self.rows.items()},
        }

    def _train(self, name: str, dataset: Dataset) -> Emmett:
        folder, irene = self.work / name, Irene(cache=self.cache, **SIZES[self.size])
        inputs = irene.inputs(dataset)
        if folder.exists():
            model = Emmett.load(folder, cache=self.cache)
            if model.about["inputs"] == inputs:
                self.seconds[f"train {name}"] = model.about["seconds"]["fit"]
                return model
        model = irene.fit(dataset, report=print)
        self.seconds[f"train {name}"] = sum(irene.seconds.values())
        model.about["seconds"] = {**irene.seconds, "fit": self.seconds[f"train {name}"]}
        model.save(folder, overwrite=True)
        return model

    def _timed(self, name: str, run: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        found = run()
        self.seconds[name] = time.perf_counter() - started
        return found

    def _note(self, name: str, found: Evaluation) -> None:
        self.rows[name] = found
        metrics, by_kind = found["generalized"], found.by_kind
        assert by_kind is not None
        print(
            f"{self.parts.after.name:15} {name:17} P@1 {metrics['P@1']:5.1f}  R@10 {metrics['R@10']:5.1f}  "
            f"novel R@10 {by_kind.kinds['novel']['R@10'].value:5.1f}",
            flush=True,
        )

    def _figures(self, found: Evaluation) -> dict[str, Any]:
        by_kind, last = found.by_kind, self.rows[LAST]
        assert by_kind is not None
        assert last.by_kind is not None
        metrics = ("P@1", "R@10")
        ours, theirs = found.per_query["generalized"], last.per_query["generalized"]
        differences = {name: paired_interval(ours[name], theirs[name])._asdict() for name in metrics}
        pairs = by_kind.per_query["novel"]["R@10"], last.by_kind.per_query["novel"]["R@10"]
        differences["novel R@10"] = paired_interval(*pairs)._asdict()
        return {
            **{name: found["generalized"][name] for name in metrics},
            "novel R@10": by_kind.kinds["novel"]["R@10"].value,
            "observed R@10": by_kind.kinds["observed"]["R@10"].value,
            "minus full training": differences,
        }


def main() -> None:
    """Run, print and merge into the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="keeps models, so that a run continues")
    parser.add_argument("--size", choices=sorted(SIZES), default="default")
    parser.add_argument("--most-items", type=int, help="a random sample of the items")
    parser.add_argument("--cache", type=Path, help="folder for embeddings")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/keep_items.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for folder in options.data:
        parts = read_parts(folder, options.most_items)
        sample = "" if options.most_items is None else f" --most-items {options.most_items}"
        work = options.work / f"{folder.name}-{options.size}{sample.replace(' ', '')}"
        work.mkdir(parents=True, exist_ok=True)
        found = Study(parts, work, options.size, EmbeddingCache(options.cache)).run()
        facts = {
            "commit": git_commit(Path(package.__file__).parent),
            "command": f"python benchmarks/keep_items.py {folder.name} --size {options.size}{sample}",
            "data": parts.after.fingerprint,
            "seed": 0,
            "threads": options.threads,
        }
        merge_results(options.out, folder.name, {options.size: {**facts, **found}})


if __name__ == "__main__":
    main()
