"""`metaxc search`: the best items of a query."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
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
    read_lines,
    set_threads,
)


def search(
    model: Model,
    queries: Annotated[
        list[str] | None, typer.Argument(help="One or more queries.", metavar="QUERY...")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Queries, one per line; - is stdin.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Items per query.")] = 10,
    novel_only: Annotated[bool, typer.Option("--novel", help="Rank novel items only.")] = False,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Rank the model's items for each query; novel items are marked."""
    set_threads(threads)
    asked = read_lines(file, queries, "queries")
    trained = load_model(model, base, cache)
    found = trained.search(asked, k, among=trained.novel if novel_only else None)
    if as_json:
        answers = [
            {"query": query, "hits": [asdict(hit) for hit in hits]}
            for query, hits in zip(asked, found, strict=True)
        ]
        print_json({"answers": answers})
        return
    for query, hits in zip(asked, found, strict=True):
        rows = [[f"{hit.score:.3f}", "novel" if hit.novel else "", hit.id, hit.text] for hit in hits]
        print_table(f"query: {query}", ["score", "", "id", "item"], rows, right_from=9)
