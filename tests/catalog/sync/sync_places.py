"""Names in vector stores that run, and catalogs with a life to be followed."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from metaxc.catalog import NewItem
from metaxc.catalog.sync import SyncSettings, open_target, sync_catalog

sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "reliability"))
from vector_stores import catalog_rows, differences

NAMES = (f"items{number}x" for number in count())
"""A new name in a vector store for every test."""


@dataclass
class Place:
    """A name in a running vector store."""

    kind: str
    store: object
    name: str

    @property
    def url(self):
        return self.store.url(self.name)

    def open(self, batch_rows=None):
        target = open_target(self.url)
        if batch_rows is not None:
            target.batch_rows = batch_rows
        return target

    def sync(
        self, catalog, batch_rows=None, index="exact", cutover=False, compare=False, model=None, **settings
    ):
        """Synchronise, with an exact index unless told otherwise."""
        with self.open(batch_rows) as target:
            return sync_catalog(
                catalog.store,
                target,
                SyncSettings(index=index, **settings),
                cutover=cutover,
                compare=compare,
                model=model,
            )

    def differences(self, catalog):
        """What is not as in the catalog, read without metaxc."""
        return differences(self.store.read(self.name), catalog_rows(catalog.store))


def live(catalog, seed, steps=12):
    """Random adds, changes of text and tags, clicks, undone clicks and deletions; returns the ids touched and the ids
    that were there and are gone."""
    drawn, ids = random.Random(seed), [item.id for item in catalog.list(limit=1000).items]
    before, touched, clicks = set(ids), set(), []
    for step in range(steps):
        kind = drawn.choice(["add", "add", "text", "tags", "click", "click", "undo", "delete"])
        id = drawn.choice(ids)
        if kind == "add":
            id = f"new/{seed}-{step} ü'\""
            tags = tuple(drawn.sample(["red", 'a "tag"', "b\\c,{}", "ü"], 2))
            fields = {"price": drawn.random(), "ü 'a'": ['x "y"', "\\"], "sale": drawn.random() < 0.5}
            catalog.add([NewItem(id, f"i{drawn.randrange(200)}", tags, fields)])
            ids.append(id)
        elif kind == "text":
            catalog.update(id, text=f"i{drawn.randrange(200)}")
        elif kind == "tags":
            catalog.update(id, tags=[f"tag {step}"], set_fields={"price": step, "sale": None})
        elif kind == "click":
            clicks.append((id, catalog.click(id, f"t{drawn.randrange(160)}").number))
        elif kind == "undo" and clicks:
            id, number = clicks.pop()
            catalog.undo(number)
        elif kind == "delete":
            catalog.delete([id])
            ids.remove(id)
            clicks = [one for one in clicks if one[0] != id]
        touched.add(id)
    return touched & set(ids), before - set(ids)
