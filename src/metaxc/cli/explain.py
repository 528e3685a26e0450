"""`metaxc explain`: where a meta-classifier comes from."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from metaxc.cli.shared import (
    Base,
    Cache,
    Json,
    Model,
    Threads,
    load_model,
    print_json,
    print_table,
    set_threads,
)


def explain(
    model: Model,
    text: Annotated[str, typer.Argument(help="The text of a new item, or the id of an item.")],
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Show which observed items' classifiers make an item's meta-classifier, and how much each counts."""
    set_threads(threads)
    trained = load_model(model, base, cache)
    row = trained.items.row_of.get(text)
    explanation = trained.explain(text if row is None else trained.items.texts[row])
    if as_json:
        print_json(asdict(explanation))
        return
    rows = [
        [f"{n.similarity:.3f}", f"{n.weight:.3f}", f"{n.share:.1f} %", n.id, n.text]
        for n in explanation.neighbours
    ]
    print_table(f"item: {explanation.text}", ["similarity", "weight", "share", "id", "neighbour"], rows, 9)
    print(
        f"its own text {explanation.text_share:.1f} %, neighbours' classifiers {explanation.neighbour_share:.1f} %, "
        f"learnt {explanation.learnt_share:.1f} %"
    )
    if not any(neighbour.weight for neighbour in explanation.neighbours):
        print(
            "On this data the neighbours were given no weight: on pseudo-novel items the adapted text ranks as well."
        )
