"""kill -9 in the middle of `metaxc sync`, again and again: does the vector store end up equal to the catalog?

    python benchmarks/reliability/sync.py --kills 100 --out benchmarks/results/reliability/sync.json

Per vector store, a catalog is changed at random (adds, changes, clicks, deletions), and a child that synchronises it
is killed in the middle: it reports each block of changes that it has written, and is killed during a block drawn at
random, or between the last block and the end. Every tenth child builds a new table beside (`--cutover`). Only kills
after the first block and before the end count, and the run goes on until there are --kills of them; how many came
before and after is reported too. After every other kill, and at the end, a child completes the synchronisation, and
the rows are read with the vector store's own client and compared with the catalog: ids, texts, tags, states, clicks,
fields, and vectors to the last bit. Then a catalog of --rows items shows rows per second, and recall@10 of the
approximate index against exact answers.

Milvus is milvus-lite's server (not a cluster), Qdrant the local mode of its client library. Both keep running while the
child is killed, or, as Lance, Qdrant's local mode and Parquet, consist of files that the child was writing.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from proof_run import add_options, finish_run, use_source

use_source()

from vector_stores import KINDS, PACKAGES, STORES, catalog_rows, differences  # noqa: E402
from world import Child, all_items, ask, model, text_of  # noqa: E402

from metaxc.catalog import Catalog, CatalogSettings, NewItem  # noqa: E402
from metaxc.catalog.catalog_folder import CatalogFolder  # noqa: E402
from metaxc.catalog.store import Store  # noqa: E402
from metaxc.catalog.sync import SyncSettings, open_target, sync_catalog  # noqa: E402

BATCH = 8
"""Rows per step of a sync that is killed, so that it has many steps."""

TAIL = 0.15
"""Share of the kills that are aimed at what follows the last block: tidying up, and of a cutover the check of the
recall, the switch and the removal of older tables."""

LOADED = {
    "postgresql": ("psycopg", "pgvector.psycopg"),
    "milvus": ("pymilvus",),
    "qdrant": ("qdrant_client",),
    "lance": ("lance",),
    "parquet": ("pyarrow.parquet", "pyarrow.compute"),
}
"""What each vector store's child would else load in its first block."""

NAME = "items"
WRITES = 60
"""Writes to the catalog before each kill."""


def open_store(place: Path) -> Store:
    """The catalog's store, as `metaxc sync` opens it."""
    return Store(CatalogFolder(place).current(), read_only=True)


class Kill:
    """kill -9 for the process that calls it, from a thread of its own: a parent that waits for its turn on a busy
    machine would come too late for a synchronisation of milliseconds.

    Args:
        drawn: Draws the place: a share of the changes, and a part of the block after it; or after the last block.
        tail: Seconds that a synchronisation takes after its last block.
    """

    def __init__(self, drawn: random.Random, tail: float):
        self.share, self.part, self.tail = drawn.random() / (1 - TAIL), drawn.random(), tail
        self.last, self.shortest, self.waiting = 0.0, math.inf, False

    def follow(self, done: int, total: int, seconds: float) -> None:
        """Called after each block, with the changes that are written, all changes, and the seconds until now."""
        self.shortest, self.last = min(self.shortest, seconds - self.last), seconds
        if self.waiting or done < min(self.share, 1) * total:
            return
        self.waiting = True
        sys.setswitchinterval(1e-4)
        pause = self.part * (self.shortest if self.share < 1 else self.tail)
        threading.Thread(target=self._strike, args=(pause,), daemon=True).start()

    @staticmethod
    def _strike(pause: float) -> None:
        time.sleep(pause)
        os.kill(os.getpid(), signal.SIGKILL)


def synchronise(
    place: Path, url: str, cutover: bool, batch: int | None, index: str = "exact", kill: Kill | None = None
) -> Any:
    """A child's work: one synchronisation, with `kill` one that is not going to end."""

    def work(tell) -> None:
        with open_store(place) as store, open_target(url) as target:
            if batch is not None:
                target.batch_rows = batch
            target.current()  # connected
            tell({"begins": True})
            started = time.perf_counter()

            def progress(done: int, total: int) -> None:
                if not total:
                    return
                tell({"done": done, "total": total, "at": time.perf_counter() - started})
                if kill is not None:
                    kill.follow(done, total, time.perf_counter() - started)

            settings = SyncSettings(index=index)
            report = sync_catalog(store, target, settings, progress, cutover=cutover, model=model())
            seconds = time.perf_counter() - started
            rows = report.upserted + report.deleted
            tell({"seconds": seconds, "rows": rows, "compared": report.compared, "recall": report.recall})

    return work


def change(place: Path, drawn: random.Random, round: int) -> None:
    """Random writes to the catalog."""
    with Catalog.open(place, model()) as catalog:
        there, new = [item.id for item in all_items(catalog)], []
        for n in range(WRITES // 2):
            fields = {"round": round, "even": True} if n % 2 == 0 else {}
            new.append(NewItem(f"{round}-{n}", text_of(drawn), ("tag",) * (n % 2), fields))
        catalog.add(new)
        for id in drawn.sample(there, WRITES // 6):
            catalog.click(id, text_of(drawn))
        for id in drawn.sample(there, WRITES // 6):
            catalog.update(id, text=text_of(drawn), tags=[f"tag {round}"], set_fields={"round": round})
        catalog.delete(drawn.sample(there, min(WRITES // 2, len(there) - 100)))


def compare(place: Path, store: Any) -> list[str]:
    """What differs between the vector store and the catalog, read in a child."""

    def work(tell) -> None:
        with open_store(place) as opened:
            tell({"differences": differences(store.read(NAME), catalog_rows(opened))[:5]})

    told, code = ask(work)
    if code or "differences" not in told[-1]:
        return [f"the vector store cannot be read: {told[-1:]}"]
    return list(told[-1]["differences"])


@dataclass
class Killed:
    """What is known of a child that was killed: whether it had reported a block, all of its blocks, the end, errors."""

    began: bool = False
    wrote_all: bool = False
    ended: bool = False
    errors: list[Any] = field(default_factory=list)

    def hear(self, line: dict[str, Any]) -> None:
        """Take in one report of the child."""
        self.began |= "done" in line
        self.wrote_all |= "done" in line and line["done"] >= line["total"]
        self.ended |= "seconds" in line
        self.errors += [line] if "error" in line else []


def watch(work: Any) -> Killed:
    """Run a synchronisation that is going to be killed, and note how far it has come."""
    child, killed = Child(work), Killed()
    for line in child.lines():
        killed.hear(line)
    child.wait()
    return killed


def kill_syncs(kind: str, store: Any, kills: int, seed: int, most_seconds: float) -> dict[str, Any]:
    """So many synchronisations to one vector store that were killed in the middle."""
    folder = Path(
        tempfile.mkdtemp(prefix="metaxc-sync-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    )
    place, drawn, started = folder / "catalog", random.Random(seed), time.perf_counter()
    Catalog.create(place, model(), settings=CatalogSettings(observe_after=3)).close()
    counts = {"kills": 0, "of these after the last block": 0, "of these cutovers": 0}
    counts |= {"came before the first block": 0, "came too late": 0, "completed": 0, "of these compared": 0}
    problems: list[str] = []
    tails, round = {False: 0.01, True: 0.05}, 0

    def complete() -> None:
        told, code = ask(synchronise(place, store.url(NAME), False, BATCH))
        if code or "seconds" not in told[-1]:
            problems.append(f"{kind}: the sync after kill {counts['kills']} failed: {told[-1:]}")
            return
        learn_tail(False, told)
        counts["completed"] += 1
        counts["of these compared"] += told[-1]["compared"]
        problems.extend(f"{kind}, kill {counts['kills']}: {one}" for one in compare(place, store))

    def learn_tail(cutover: bool, told: list[Any]) -> None:
        written = [line["at"] for line in told if "at" in line]
        if written:
            tails[cutover] = 0.5 * tails[cutover] + 0.5 * (told[-1]["seconds"] - written[-1])

    try:
        complete()
        told, _ = ask(synchronise(place, store.url(NAME), True, BATCH))
        if "seconds" in told[-1]:
            learn_tail(True, told)
        while counts["kills"] < kills and time.perf_counter() - started < most_seconds and len(problems) < 5:
            round += 1
            change(place, drawn, round)
            cutover = round % 10 == 0
            kill = Kill(drawn, tails[cutover])
            killed = watch(synchronise(place, store.url(NAME), cutover, BATCH, kill=kill))
            problems.extend(f"{kind}, kill {counts['kills']}: {one}" for one in killed.errors)
            if killed.ended or not killed.began:
                counts["came too late" if killed.ended else "came before the first block"] += 1
            else:
                counts["kills"] += 1
                counts["of these after the last block"] += killed.wrote_all
                counts["of these cutovers"] += cutover
            if round % 2:
                complete()
        complete()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if counts["kills"] < kills:
        problems.append(f"{kind}: {counts['kills']} of {kills} kills in the middle; give more --seconds")
    return {**counts, "seconds": round_to(time.perf_counter() - started), "problems": problems}


def measure(kind: str, store: Any, place: Path) -> dict[str, Any]:
    """Rows per second of the first synchronisation, and recall@10 of the index with a cutover."""
    url = store.url("speed")
    told = []
    for cutover in (False, False, True):
        lines, code = ask(synchronise(place, url, cutover, None, "hnsw"))
        if code or "seconds" not in lines[-1]:
            return {"problems": [f"{kind}: {lines[-1:]}"]}
        told.append(lines[-1])
    first, again, last = told
    return {
        "rows": first["rows"],
        "seconds of the first sync, with its index": round_to(first["seconds"]),
        "rows per second": round_to(first["rows"] / first["seconds"]),
        "recall@10": last["recall"],
        "seconds of a sync without changes": round_to(again["seconds"]),
        "rows of a sync without changes": again["rows"],
        "problems": [] if again["rows"] == 0 else [f"{kind}: rows were written without changes"],
    }


def round_to(value: float) -> float:
    """Three significant digits."""
    return float(f"{value:.3g}")


def run(kinds: list[str], kills: int, seed: int, rows: int, most_seconds: float) -> dict[str, Any]:
    """The proof for these vector stores."""
    model()
    folder = Path(tempfile.mkdtemp(prefix="metaxc-sync-"))
    drawn = random.Random(seed)
    found: dict[str, Any] = {"seed": seed, "targets": {}, "problems": []}
    try:
        with Catalog.create(folder / "catalog", model()) as catalog:
            for start in range(0, rows - len(catalog), 500):
                most = min(500, rows - 150 - start)
                catalog.add([NewItem(f"bulk{start + n}", text_of(drawn)) for n in range(most)])
        for kind in kinds:
            package = PACKAGES.get(kind)
            if package is not None and find_spec(package) is None:
                found["targets"][kind] = f"not run: {package} is not installed"
                continue
            # Loaded once, before the children are forked; connections are made in the children alone.
            for module in LOADED[kind]:
                import_module(module)
            store = STORES[kind]()
            try:
                killed = kill_syncs(kind, store, kills, seed, most_seconds)
                speed = measure(kind, store, folder / "catalog")
            finally:
                store.close()
            found["problems"] += killed.pop("problems") + speed.pop("problems")
            found["targets"][kind] = {**killed, "speed": speed}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def main() -> None:
    """Kill, compare, measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100, help="per vector store")
    parser.add_argument(
        "--rows", type=int, default=5000, help="items of the catalog that shows speed and recall"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=1800.0, help="stop killing one vector store after so long"
    )
    parser.add_argument("--targets", nargs="+", choices=KINDS, default=list(KINDS))
    add_options(parser)
    options = parser.parse_args()
    finish_run(run(options.targets, options.kills, options.seed, options.rows, options.seconds), options)


if __name__ == "__main__":
    main()
