"""A night in production: items and clicks stream in, a new model is trained on them, and the service takes it while
searches go on. Usage: python examples/nightly_retraining.py [FOLDER]"""

from __future__ import annotations

import random
import sys
import threading
from pathlib import Path

from processes import metaxc, run_example, running_service
from toy_shop import KINDS, make_item, make_query, write_shop

from metaxc.catalog import NewItem
from metaxc.serve.client import Client

FAST = ("--size", "fast", "--folds", "1")  # a few seconds; leave it out for accuracy


class Visitors(threading.Thread):
    """Searches one query after another until it is stopped, and counts what went wrong."""

    def __init__(self, url: str):
        super().__init__()
        self.url, self.answered, self.failed = url, 0, 0
        self.stopping = threading.Event()

    def run(self) -> None:
        drawn = random.Random(1)
        with Client(self.url) as client:
            while not self.stopping.wait(0.02):
                try:
                    client.search([make_query(drawn.choice(list(KINDS)), drawn)], k=5)
                    self.answered += 1
                except Exception as error:
                    print(f"a search failed: {error}")
                    self.failed += 1


def main(folder: Path) -> None:
    """Train, serve, stream, train again, switch."""
    drawn = random.Random(2)
    write_shop(folder / "data")
    models, catalog = folder / "models", folder / "catalog"
    metaxc("train", folder / "data", "--out", models / "first", *FAST)
    with (
        running_service(models / "first", "--catalog", catalog, "--models", models) as url,
        Client(url) as client,
    ):
        visitors = Visitors(url)
        visitors.start()
        before = client.about().model

        # The day: one new product of each kind, and ten visitors who click it.
        products = {kind: make_item(kind, 100, drawn) for kind in KINDS}
        client.add([NewItem(id, text) for id, text in products.values()])
        for kind, (id, _) in products.items():
            client.clicks([(id, make_query(kind, drawn)) for _ in range(10)])
        print(f"{len(products)} new items and {client.about().clicks} clicks recorded while visitors search")

        # The night: what the catalog has learnt becomes the next training data.
        learnt = ("--format", "dataset", "--with-training-data", folder / "data")
        metaxc("catalog", "export", catalog, folder / "nightly", *learnt)
        metaxc("train", folder / "nightly", "--out", models / "second", "--novel", "0.05", *FAST)
        answered = visitors.answered
        print(metaxc("switch", url, models / "second"), end="")

        after = client.about().model
        states = [client.get(id).state for id, _ in products.values()]
        visitors.stopping.set()
        visitors.join()
    print(f"model {before[:8]} -> {after[:8]}; items of the day: {states.count('observed')} observed")
    print(f"searches: {visitors.answered} answered, {visitors.failed} failed, {answered} before the switch")
    if visitors.failed or before == after:
        sys.exit("a search failed, or the model was not switched")


if __name__ == "__main__":
    run_example(main)
