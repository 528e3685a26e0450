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
    revealed: Annotated[
        list[str] | None,
        typer.Option("--revealed", help="A query known to have clicked the item; can be repeated."),
    ] = None,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Show which observed items' classifiers make an item's meta-classifier, and how much each counts.

    The item's first clicks (--revealed "a query" --revealed "another") vote for its neighbours and count as a small
    classifier of its own, without training.
    """
    set_threads(threads)
    trained = load_model(model, base, cache)
    row = trained.items.row_of.get(text)
    explanation = trained.explain(text if row is None else trained.items.texts[row], revealed or None)
    if as_json:
        print_json(asdict(explanation))
        return
    heads = ["similarity", "weight", "share", "id", "neighbour", *(["brought by"] if revealed else [])]
    rows = [
        [f"{n.similarity:.3f}", f"{n.weight:.3f}", f"{n.share:.1f} %", n.id, n.text]
        + ([n.voter or "its text"] if revealed else [])
        for n in explanation.neighbours
    ]
    print_table(f"item: {explanation.text}", heads, rows, 9)
    shares = {
        "its own text": explanation.text_share,
        "neighbours' classifiers": explanation.neighbour_share,
        "learnt": explanation.learnt_share,
        **({"revealed queries": explanation.revealed_share} if revealed else {}),
    }
    print(", ".join(f"{name} {share:.1f} %" for name, share in shares.items()))
    if not any(neighbour.weight for neighbour in explanation.neighbours):
        print(
            "On this data the neighbours were given no weight: on pseudo-novel items the adapted text ranks as well."
        )
