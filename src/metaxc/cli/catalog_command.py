"""`metaxc catalog`: live items on the command line. `metaxc serve` offers the same over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, Typer

from metaxc.cli.catalog_options import (
    CatalogOptions,
    FieldOptions,
    Filter,
    Folder,
    Id,
    States,
    Tags,
    open_store,
    takes_catalog,
)
from metaxc.cli.catalog_upkeep_command import check, export, migrate, restore, snapshot
from metaxc.cli.catalog_write_command import add, click, clicks, parse_fields, upload
from metaxc.cli.shared import (
    Exposure,
    Json,
    print_catalog_hits,
    print_items,
    print_json,
    print_status,
    read_lines,
)
from metaxc.cli.vector_options import Vector, Vectors, read_queries, read_vector

app = Typer(
    name="catalog",
    help="Manage a live catalog: a durable store of items that can be searched as soon as they are added.\n\n"
    "To try it:  metaxc catalog create CATALOG MODEL;  metaxc catalog add CATALOG MODEL --id new 'its text';  "
    "metaxc catalog search CATALOG MODEL 'a query';  metaxc catalog click CATALOG MODEL new 'a query'.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Queries = Annotated[list[str] | None, Argument(help="One or more queries.", metavar="QUERY...")]
Number = Annotated[int, Argument(help="The click's number, as `click` prints it.", metavar="CLICK")]
Count = Annotated[int, Option("-k", min=1, help="Number of items per query.")]
Data = Annotated[Path | None, Option(help="Data set whose training queries previews use as known queries.")]
Clicks = Annotated[int | None, Option(min=1, help="Clicks until an item is observed; default: docs/live.md.")]
KNOWN_QUERIES = 2_000
"""Known queries that a preview scores; the time of a preview grows with their number."""


def known_queries(data: Path | None, most: int = KNOWN_QUERIES) -> list[str]:
    """A sample of a data set's training queries, always the same one; none without a data set."""
    import numpy as np

    from metaxc.data import read_folder

    if data is None:
        return []
    texts = list(dict.fromkeys(read_folder(data).train.queries.texts))
    rows = np.random.default_rng(0).permutation(len(texts))[:most]
    return [texts[row] for row in np.sort(rows)]


@app.command()
@takes_catalog
def create(
    given: CatalogOptions,
    data: Data = None,
    observe_after: Clicks = None,
) -> None:
    """Create a catalog with the model's items."""
    from metaxc.catalog import Catalog, CatalogSettings

    trained, queries = given.load_model(), known_queries(data)
    settings = CatalogSettings() if observe_after is None else CatalogSettings(observe_after=observe_after)
    with Catalog.create(given.catalog, trained, settings=settings, queries=queries) as created:
        print_status(f"created {created!r} with {len(queries):,} known queries")


@app.command()
def about(catalog: Folder, as_json: Json = False) -> None:
    """Print a summary: items by state, clicks, changes and the model."""
    from metaxc.catalog.item_queries import count_clicks, count_items

    with open_store(catalog) as store:
        items = count_items(store)
        facts: dict[str, Any] = {"clicks": count_clicks(store), "changes": store.sequence}
        facts |= {"model": store.metadata["model"], "dim": store.dim, "exposure": store.exposure}
    if as_json:
        print_json({"items": items, **facts})
        return
    print("items: " + ", ".join(f"{count:,} {state}" for state, count in items.items()))
    for name, value in facts.items():
        print(f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {value}")


@app.command()
@takes_catalog
def update(
    given: CatalogOptions,
    id: Id,
    text: Annotated[str | None, Option(help="The item's new text.")] = None,
    tags: Tags = None,
    add_tags: Annotated[list[str] | None, Option("--add-tag", help="A tag to add; may be repeated.")] = None,
    remove_tags: Annotated[
        list[str] | None, Option("--remove-tag", help="A tag to remove; may be repeated.")
    ] = None,
    fields: FieldOptions = None,
    remove_fields: Annotated[
        list[str] | None, Option("--remove-field", help="The name of a field to remove; may be repeated.")
    ] = None,
    vector: Vector = None,
    as_json: Json = False,
) -> None:
    """Change parts of an item: its text, all of its tags (--tag), single tags or single fields. The rest stays."""
    from metaxc.data.item_fields import dump_fields

    changes = parse_fields(fields) | dict.fromkeys(remove_fields or ())
    embedding = None if vector is None else read_vector(vector)
    with given.open() as opened:
        item = opened.update(
            id,
            text,
            tags,
            add_tags=add_tags or (),
            remove_tags=remove_tags or (),
            set_fields=changes,
            vector=embedding,
        )
    if as_json:
        print_json(asdict(item))
    else:
        fields_now = f", and the fields: {dump_fields(item.fields)}" if item.fields else ""
        print(f"{item.id} is {item.state} and has the tags: {', '.join(item.tags) or 'none'}{fields_now}")


@app.command()
@takes_catalog
def delete(
    given: CatalogOptions,
    ids: Annotated[list[str] | None, Argument(help="Ids of the items.", metavar="ID...")] = None,
    file: Annotated[Path | None, Option("--file", help="One id per line; - is stdin.")] = None,
    ignore_missing: Annotated[
        bool, Option("--ignore-missing", help="Ignore ids of no item, as when a run is repeated.")
    ] = False,
) -> None:
    """Delete items with their clicks, all or none."""
    unwanted = read_lines(file, ids, "ids")
    with given.open() as opened:
        print(f"{opened.delete(unwanted, ignore_missing=ignore_missing):,} deleted")


@app.command()
@takes_catalog
def undo(given: CatalogOptions, click: Number) -> None:
    """Remove a click. The item is again what it was without it."""
    with given.open() as opened:
        item = opened.undo(click)
    print(f"click {click} removed: {item.id} is {item.state} and has {item.clicks} clicks")


@app.command("list")
def list_command(
    catalog: Folder,
    filter: Filter = None,
    tags: Tags = None,
    states: States = None,
    after: Annotated[
        str | None, Option(help="Where the page before has ended: its `next`, as the command prints it.")
    ] = None,
    limit: Annotated[int, Option(min=1, help="Number of items of a page, at most 1,000.")] = 100,
    as_json: Json = False,
) -> None:
    """Print a page of the items, in the order in which they were added. --filter, --tag and --state choose among them,
    as in `search`."""
    from metaxc.catalog.filter_follower import FilterFollower
    from metaxc.catalog.item_pages import list_items

    with open_store(catalog) as store:
        page = list_items(
            FilterFollower(store),
            filter=filter,
            tags=tags or (),
            states=states or (),  # type: ignore[arg-type]
            after=after,
            limit=limit,
        )
    if as_json:
        print_json(asdict(page))
        return
    print_items("items", page.items)
    if page.next is not None:
        print(f"There are more: --after {page.next}")


@app.command()
@takes_catalog
def search(
    given: CatalogOptions,
    queries: Queries = None,
    vectors: Vectors = None,
    k: Count = 10,
    offset: Annotated[int, Option(min=0, help="Best items to leave out, for the next page.")] = 0,
    filter: Filter = None,
    tags: Tags = None,
    states: States = None,
    exposure: Exposure = None,
    as_json: Json = False,
) -> None:
    """Rank the items for each query. --filter, --tag and --state choose among them, --exposure shows new items earlier
    or later. --vectors FILE searches with embeddings of queries, which the model expands as it expands texts.

    For example, in stock, below 20, and not of one brand:

      metaxc catalog search CATALOG MODEL 'running shoes' --filter '{"and": [{"field": "in_stock", "eq": true},
      {"field": "price", "lt": 20}, {"not": {"field": "brand", "eq": "x"}}]}'
    """
    asked = read_queries(None, queries, vectors)
    with given.open(read_only=True) as opened:
        results = opened.search(
            asked.given,
            k,
            offset=offset,
            filter=filter,
            tags=tags or (),
            states=states or (),  # type: ignore[arg-type]
            exposure=exposure,
            texts=asked.names,
        )
    print_catalog_hits(asked.names, results, as_json)


for command in (add, upload, click, clicks, snapshot, restore, export, migrate, check):
    app.command()(command)
