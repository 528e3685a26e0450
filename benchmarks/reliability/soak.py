"""Items come and three quarters of them go again, for a long time: does anything grow that should not?

    python benchmarks/reliability/soak.py --operations 20000 --out benchmarks/results/reliability/soak.json

One catalog with a few thousand items, so that its index is the one made for churn. Each round adds items, clicks,
updates, takes clicks back and searches; then three quarters of what the round has added are deleted, and as many of the
older ones as stay, so that a round ends with as many items as it began with. At its end: resident memory, the record's
size beside that of a fresh copy with the same content, the index's recall@10, the time of a search. At the end of all,
the catalog has to be what a plain dict says, also when it is opened again, and the index no worse than one made anew.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from live import quantiles
from proof_run import write_result
from world import content_of, model, text_of

from metaxc.catalog import Catalog, CatalogSettings, NewItem
from metaxc.index import Index, build_index

DIM = 64
"""From this many dimensions on there is an index made for churn."""

ITEMS, ROUNDS = 6_000, 10
OBSERVE_AFTER = 3
GO = 0.75
"""Share of the added items that is deleted again in the same round."""

FLAT = 1.05
"""The most memory of the second half of all rounds, as a multiple of that of the first."""

ROOM = 3.0
"""The record may be so many times as large as a fresh copy: SQLite joins pages that are less than a third full. It
comes to 1.5 when every item has been replaced once or twice, and stays at 2.2 however long it goes on."""

RECALL = 0.005
"""By so much recall@10 may be below that of a fresh index."""

KINDS = ("add", "add", "click", "click", "click", "undo", "update", "search", "search", "search")
Known = dict[str, list[Any]]


class Soak:
    """A catalog, and the dict that it is held against.

    Args:
        folder: Where the catalog is made.
        items: How many it holds.
        seed: Of what is drawn.
    """

    def __init__(self, folder: Path, items: int, seed: int):
        self.folder, self.drawn = folder, random.Random(seed)
        self.catalog = Catalog.create(
            folder, model(dim=DIM), settings=CatalogSettings(observe_after=OBSERVE_AFTER)
        )
        self.known: Known = {}
        self.new: list[str] = []
        self.numbers = 0
        self.counts = {"added": 0, "deleted": 0, "clicks": 0, "undone": 0, "updates": 0, "searches": 0}
        self.times: list[float] = []
        while len(self.known) < items:
            self.add(min(500, items - len(self.known)))

    def add(self, count: int) -> None:
        """Some novel items."""
        made = []
        for _ in range(count):
            self.numbers += 1
            tags = ("even",) if self.numbers % 2 == 0 else ()
            made.append(NewItem(f"item-{self.numbers}", text_of(self.drawn), tags))
        self.catalog.add(made)
        self.known |= {item.id: [item.text, list(item.tags), "novel", []] for item in made}
        self.new += [item.id for item in made]
        self.counts["added"] += count

    def click(self) -> None:
        """Mostly of a few items, so that some become observed."""
        name = self.drawn.choice(self.new[-20:] or list(self.known))
        query = text_of(self.drawn)
        click = self.catalog.click(name, query)
        self.known[name][3].append([click.number, query])
        self._state(name)
        self.counts["clicks"] += 1

    def undo(self) -> None:
        """The last click of an item."""
        name = next((name for name in self.new[:-20:-1] if name in self.known and self.known[name][3]), None)
        if name is not None:
            self.catalog.undo(self.known[name][3].pop()[0])
            self._state(name)
            self.counts["undone"] += 1

    def update(self) -> None:
        """Another text."""
        name = self.drawn.choice(self.new or list(self.known))
        self.known[name][0] = text_of(self.drawn)
        self.catalog.update(name, text=self.known[name][0])
        self.counts["updates"] += 1

    def search(self) -> None:
        """As a user does."""
        started = time.perf_counter()
        found = self.catalog.search([text_of(self.drawn)], 10)[0]
        self.times.append(time.perf_counter() - started)
        ghosts = [hit.id for hit in found if hit.id not in self.known and not hit.id.startswith("base")]
        if ghosts or len(found) < 10:
            raise AssertionError(f"found {len(found)} items, of which {ghosts} are not there")
        self.counts["searches"] += 1

    def withdraw(self) -> None:
        """Three quarters of what is new, and as many of the old as stay."""
        self.drawn.shuffle(self.new)
        going = round(GO * len(self.new))
        new = set(self.new)
        old = [name for name in self.known if name not in new][: len(self.new) - going]
        gone = self.new[:going] + old
        for start in range(0, len(gone), 10):
            self.catalog.delete(gone[start : start + 10])
        for name in gone:
            del self.known[name]
        self.counts["deleted"] += len(gone)
        self.new = []

    def round(self, operations: int, going_on: Callable[[], bool]) -> None:
        """So many operations, then the deletes."""
        self.new, self.times = [], []
        for _ in range(operations):
            if not going_on():
                break
            kind = self.drawn.choice(KINDS)
            if kind == "add":
                self.add(self.drawn.randint(1, 4))
            else:
                getattr(self, kind)()
        self.withdraw()

    def measured(self) -> dict[str, Any]:
        """Memory, disk space, recall and search times after a round."""
        record = self.catalog.store.folder / "catalog.sqlite"
        log = record.with_name(f"{record.name}-wal")
        fresh = self.folder.with_name("fresh.sqlite")
        with sqlite3.connect(record) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            connection.execute("VACUUM INTO ?", (str(fresh),))
        connection.close()
        copied = fresh.stat().st_size
        fresh.unlink()
        return {
            "items": len(self.catalog),
            "deleted so far": self.counts["deleted"],
            "memory, MB": round(psutil.Process().memory_info().rss / 2**20, 1),
            "record, MB": round(record.stat().st_size / 2**20, 2),
            "log, MB": round(log.stat().st_size / 2**20, 2),
            "record against a fresh copy": round(record.stat().st_size / copied, 3),
            "recall@10": self.recall(self.catalog.follower.index),
            "search, ms": quantiles(self.times),
        }

    def recall(self, index: Index) -> float:
        """Of the exact ten best of 200 queries, the share that an index finds."""
        drawn = random.Random(0)
        queries = self.catalog.encode([text_of(drawn) for _ in range(200)])
        found, _ = index.search(queries, 10)
        exact, _ = self.catalog.exact_search(queries, 10)
        shared = [
            len(set(one) & set(other)) for one, other in zip(found.tolist(), exact.tolist(), strict=True)
        ]
        return round(float(np.mean(shared)) / 10, 4)

    def fresh_index(self) -> Index:
        """A new index over the vectors in the store."""
        rows = self.catalog.store.fetch_all("SELECT key, vector FROM items ORDER BY key")
        vectors = np.stack([np.frombuffer(vector, np.float32) for _, vector in rows])
        return build_index(np.array([key for key, _ in rows]), vectors)[0]

    def differs(self, catalog: Catalog) -> list[str]:
        """Where a catalog is not what the dict says."""
        there = content_of(catalog)
        names = there.keys() | self.known.keys()
        return [name for name in sorted(names) if there.get(name) != self.known.get(name)]

    def _state(self, name: str) -> None:
        count = len(self.known[name][3])
        self.known[name][2] = "observed" if count >= OBSERVE_AFTER else "clicked" if count else "novel"


def run(operations: int, most_seconds: float, items: int = ITEMS, seed: int = 1) -> dict[str, Any]:
    """Rounds, a look after each, and the end."""
    started = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="metaxc-soak-"))
    try:
        soak = Soak(folder / "catalog", items, seed)
        begun, looks = time.perf_counter(), []
        each = most_seconds / ROUNDS
        for number in range(ROUNDS):
            until = begun + each * (number + 1)
            soak.round(operations // ROUNDS, lambda until=until: time.perf_counter() < until)
            looks.append(soak.measured())
        fresh = soak.recall(soak.fresh_index())
        about, wrong = soak.catalog.about(), soak.differs(soak.catalog)
        soak.catalog.close()
        with Catalog.open(soak.folder, model(dim=DIM)) as opened:
            wrong_again = soak.differs(opened)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = {
        **soak.counts,
        "items at the end": len(soak.known),
        "index": about.index,
        "memory, MB": halves(looks, "memory, MB"),
        "record against a fresh copy": halves(looks, "record against a fresh copy"),
        "recall@10 at the end": looks[-1]["recall@10"],
        "recall@10 of a fresh index": fresh,
        "other than the dict": len(wrong),
        "other than the dict when opened again": len(wrong_again),
        "rounds": looks,
        "seconds": round(time.perf_counter() - started, 1),
    }
    return {**found, "problems": problems(found)}


def halves(looks: list[dict[str, Any]], name: str) -> dict[str, float]:
    """The most of each half of the rounds."""
    first, second = (
        max(look[name] for look in part) for part in (looks[: len(looks) // 2], looks[len(looks) // 2 :])
    )
    return {"first half": first, "second half": second, "ratio": round(second / first, 4)}


def problems(found: dict[str, Any]) -> list[str]:
    """What does not hold."""
    made = []
    memory, record = found["memory, MB"], found["record against a fresh copy"]
    if memory["ratio"] > FLAT:
        made.append(f"memory has grown: {memory}")
    if max(record["first half"], record["second half"]) > ROOM:
        made.append(f"the record holds what is gone: {record}")
    recall, fresh = found["recall@10 at the end"], found["recall@10 of a fresh index"]
    if recall < fresh - RECALL:
        made.append(f"recall@10 is {recall}, that of a fresh index {fresh}")
    if found["other than the dict"] or found["other than the dict when opened again"]:
        made.append("the catalog is not what the dict says")
    return made


def main() -> None:
    """Soak, look and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--operations", type=int, default=20_000, help="beside the deletes")
    parser.add_argument("--seconds", type=float, default=150.0, help="no operations after so long")
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = run(options.operations, options.seconds, options.items, options.seed)
    write_result(found, options.out)


if __name__ == "__main__":
    main()
