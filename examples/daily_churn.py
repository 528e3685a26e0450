"""30 new items a day, gone after three: how many of them are found on their first day, before anybody has clicked them?

Usage: python examples/daily_churn.py [FOLDER]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from processes import metaxc, run_example
from toy_shop import KINDS, make_item, make_query, write_shop

from metaxc import Emmett
from metaxc.catalog import Catalog, NewItem
from metaxc.encoders import Pretrained

DAYS, NEW, LIFE, FIRST = 6, 30, 3, 10
LEAST = 0.5  # of the new items, among the first ten of several hundred


def main(folder: Path) -> None:
    """Train once, then live through the days."""
    drawn = random.Random(3)
    write_shop(folder / "data")
    metaxc("train", folder / "data", "--out", folder / "model", "--size", "fast", "--folds", "1")
    model, bare = Emmett.load(folder / "model"), Pretrained()
    alive: dict[str, tuple[int, str, str]] = {}  # the day it came, its kind and its text
    found = by_text = 0
    print("day  items  new  found on the first day  by the text alone")
    with Catalog.create(folder / "catalog", model) as catalog:
        items = {item.id: item.text for item in catalog.list(limit=500).items}
        for day in range(1, DAYS + 1):
            gone = [id for id, (came, _, _) in alive.items() if day - came >= LIFE]
            if gone:
                catalog.delete(gone)
            for id in gone:
                del alive[id], items[id]
            new = {}
            for number in range(NEW):
                kind = drawn.choice(list(KINDS))
                id, text = make_item(kind, 1000 * day + number, drawn)
                new[id] = (day, kind, text)
            catalog.add([NewItem(id, text) for id, (_, _, text) in new.items()])
            alive |= new
            items |= {id: text for id, (_, _, text) in new.items()}

            queries = [make_query(kind, drawn) for _, kind, _ in new.values()]
            hits = catalog.search(queries, k=FIRST)
            today = sum(id in {hit.id for hit in best} for id, best in zip(new, hits, strict=True))
            # The same by the similarity of the texts, which is what an encoder without clicks can do.
            scores = bare.encode_queries(queries) @ bare.encode_items(list(items.values())).T
            ids = list(items)
            nearest = [{ids[place] for place in (-row).argsort()[:FIRST]} for row in scores]
            texts = sum(id in best for id, best in zip(new, nearest, strict=True))
            found, by_text = found + today, by_text + texts
            print(f"{day:3}  {len(catalog):5}  {NEW:3}  {today / NEW:22.0%}  {texts / NEW:17.0%}")
    share = found / (DAYS * NEW)
    print(
        f"all days: {share:.0%} of the new items are found on their first day, {by_text / (DAYS * NEW):.0%} by text"
    )
    if share < LEAST:
        sys.exit("new items are not found")


if __name__ == "__main__":
    run_example(main)
