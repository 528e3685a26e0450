"""`metaxc catalog`: live items on the command line. `metaxc serve` offers the same over HTTP."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

from metaxc.cli.catalog_upkeep_command import (
    Folder,
    check,
    export,
    migrate,
    open_store,
    restore,
    show_progress,
    snapshot,
)
from metaxc.cli.shared import (
    Base,
    Cache,
    Exposure,
    Json,
    Model,
    Threads,
    load_model,
    print_catalog_hits,
    print_json,
    print_status,
    read_lines,
    set_threads,
)
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.catalog import Catalog

app = Typer(
    name="catalog",
    help="Manage a live catalog: a durable store of items that can be searched as soon as they are added.\n\n"
    "To try it:  metaxc catalog create CATALOG MODEL;  metaxc catalog add CATALOG MODEL --id new 'its text';  "
    "metaxc catalog search CATALOG MODEL 'a query';  metaxc catalog click CATALOG MODEL new 'a query'.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Id = Annotated[str, Argument(help="The item's id.", metavar="ID")]
NewId = Annotated[str | None, Option("--id", help="The item's id.")]
NewText = Annotated[str | None, Argument(help="The item's text.", metavar="TEXT")]
Query = Annotated[str, Argument(help="The query that led to the click.", metavar="QUERY")]
Queries = Annotated[list[str], Argument(help="One or more queries.", metavar="QUERY...")]
Number = Annotated[int, Argument(help="The click's number, as `click` prints it.", metavar="CLICK")]
Count = Annotated[int, Option("-k", min=1, help="Number of items per query.")]
Tags = Annotated[list[str] | None, Option("--tag", help="A tag of the items; may be repeated.")]
States = Annotated[list[str] | None, Option("--state", help="novel, clicked or observed; may be repeated.")]
FieldOptions = Annotated[
    list[str] | None,
    Option(
        "--field", help="A field, such as price=19.9 or in_stock=true; may be repeated.", metavar="NAME=VALUE"
    ),
]
ItemFile = Annotated[
    Path | None, Option("--file", help='JSON lines of {"id", "text", "tags", "fields"}; - is stdin.')
]
Data = Annotated[Path | None, Option(help="Data set whose training queries previews use as known queries.")]
Clicks = Annotated[int | None, Option(min=1, help="Clicks until an item is observed; default: docs/live.md.")]
SHOWN_PROBLEMS = 20
KNOWN_QUERIES = 2_000
"""Known queries that a preview scores; the time of a preview grows with their number."""


def open_catalog(
    folder: Path, model: Path, base: str | None, cache: Path | None, threads: int, read_only: bool = False
) -> Catalog:
    """Open a catalog with its model."""
    from metaxc.catalog import Catalog

    set_threads(threads)
    return Catalog.open(folder, load_model(model, base, cache, keeps_embeddings=False), read_only=read_only)


def parse_fields(options: list[str] | None) -> dict[str, Any]:
    """Fields from options NAME=VALUE. A value is JSON (a number, true, ["a", "b"]), or else a string."""
    fields: dict[str, Any] = {}
    for option in options or ():
        name, separator, text = option.partition("=")
        if not separator:
            raise ConfigError("Not a field", got=option, expected="NAME=VALUE, such as price=19.9")
        try:
            fields[name] = json.loads(text)
        except ValueError:
            fields[name] = text
    return fields


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
def create(
    catalog: Folder,
    model: Model,
    data: Data = None,
    observe_after: Clicks = None,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
) -> None:
    """Create a catalog with the model's items."""
    from metaxc.catalog import Catalog, CatalogSettings

    set_threads(threads)
    trained, queries = load_model(model, base, cache, keeps_embeddings=False), known_queries(data)
    settings = CatalogSettings() if observe_after is None else CatalogSettings(observe_after=observe_after)
    with Catalog.create(catalog, trained, settings=settings, queries=queries) as created:
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
def add(
    catalog: Folder,
    model: Model,
    text: NewText = None,
    id: NewId = None,
    tags: Tags = None,
    fields: FieldOptions = None,
    file: ItemFile = None,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Add one novel item, or a file of them, all or none. The next search finds them.

    Items that exist with the same text, tags and fields are left unchanged.
    """
    from metaxc.catalog import NewItem
    from metaxc.catalog.item_rules import parse_items

    if file is not None:
        items = parse_items(read_lines(file, None, "items"))
    elif text is not None and id is not None:
        items = [NewItem(id, text, tuple(tags or ()), parse_fields(fields))]
    else:
        raise ConfigError(
            "No item given", got="no id or no text", expected="--id ID TEXT, or --file FILE", fix="add them"
        )
    with open_catalog(catalog, model, base, cache, threads) as opened:
        result = opened.add(items)
    if as_json:
        print_json(asdict(result))
    else:
        print(f"{result.added:,} added, {result.unchanged:,} unchanged")


@app.command()
def update(
    catalog: Folder,
    model: Model,
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
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Change parts of an item: its text, all of its tags (--tag), single tags or single fields. The rest stays."""
    from metaxc.data.item_fields import dump_fields

    changes = parse_fields(fields) | dict.fromkeys(remove_fields or ())
    with open_catalog(catalog, model, base, cache, threads) as opened:
        item = opened.update(
            id, text, tags, add_tags=add_tags or (), remove_tags=remove_tags or (), set_fields=changes
        )
    if as_json:
        print_json(asdict(item))
    else:
        fields_now = f", and the fields: {dump_fields(item.fields)}" if item.fields else ""
        print(f"{item.id} is {item.state} and has the tags: {', '.join(item.tags) or 'none'}{fields_now}")


@app.command()
def delete(
    catalog: Folder,
    model: Model,
    ids: Annotated[list[str] | None, Argument(help="Ids of the items.", metavar="ID...")] = None,
    file: Annotated[Path | None, Option("--file", help="One id per line; - is stdin.")] = None,
    ignore_missing: Annotated[
        bool, Option("--ignore-missing", help="Ignore ids of no item, as when a run is repeated.")
    ] = False,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
) -> None:
    """Delete items with their clicks, all or none."""
    given = read_lines(file, ids, "ids")
    with open_catalog(catalog, model, base, cache, threads) as opened:
        print(f"{opened.delete(given, ignore_missing=ignore_missing):,} deleted")


@app.command()
def click(
    catalog: Folder,
    model: Model,
    item: Id,
    query: Query,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Record a click. From now on the query has a say in which neighbours the item's vector is computed from."""
    with open_catalog(catalog, model, base, cache, threads) as opened:
        result = opened.click(item, query)
        clicks = opened.get(item).clicks
    if as_json:
        print_json(asdict(result))
    else:
        print(f"click {result.number} recorded: {item} is {result.state} and has {clicks} clicks")


@app.command()
def clicks(
    catalog: Folder,
    model: Model,
    file: Annotated[Path, Argument(help="File of clicks: TSV, JSON lines or Parquet.", metavar="FILE")],
    skip_bad: Annotated[
        bool,
        Option("--skip-bad", help="Leave out lines that cannot be used, such as clicks on unknown items."),
    ] = False,
    again: Annotated[
        bool, Option("--again", help="Record a file once more that was recorded completely or in part.")
    ] = False,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Record the clicks of a file, any number of them.

    A line is a query's text, an item's id and, if wanted, a time and a count, separated by tabs; or JSON with "query",
    "item", "time" and "count" (.jsonl); or a row of a .parquet file. Plain or .gz. A time is in seconds since 1970 or
    ISO 8601; without one, the click happens now.

    All lines are checked before the first click is recorded. Then about 256 clicks at a time are recorded, each block
    completely or not at all. A run that was stopped resumes when the command runs again with the same file; a file that
    was recorded completely is not recorded twice.
    """
    from tqdm import tqdm

    from metaxc.catalog.click_files import record_click_file

    with (
        open_catalog(catalog, model, base, cache, threads) as opened,
        tqdm(unit=" clicks", desc="record", dynamic_ncols=True) as bar,
    ):
        result = record_click_file(
            opened,
            file,
            skip_bad=skip_bad,
            again=again,
            progress=lambda done, total: show_progress(bar, done, total),
        )
    for problem in result.problems[:SHOWN_PROBLEMS]:
        print_status(f"left out: {problem}")
    counts = {
        "recorded": result.recorded,
        "recorded_before": result.recorded_before,
        "problems": len(result.problems),
    }
    if as_json:
        print_json(counts)
    else:
        print(
            f"{result.recorded:,} clicks recorded, {result.recorded_before:,} were recorded before, "
            f"{len(result.problems):,} lines with problems"
        )


@app.command()
def undo(
    catalog: Folder, model: Model, click: Number, base: Base = None, threads: Threads = 0, cache: Cache = None
) -> None:
    """Remove a click. The item is again what it was without it."""
    with open_catalog(catalog, model, base, cache, threads) as opened:
        item = opened.undo(click)
    print(f"click {click} removed: {item.id} is {item.state} and has {item.clicks} clicks")


@app.command()
def search(
    catalog: Folder,
    model: Model,
    queries: Queries,
    k: Count = 10,
    offset: Annotated[int, Option(min=0, help="Best items to leave out, for the next page.")] = 0,
    filter: Annotated[
        str | None,
        Option(help='A condition as JSON: {"field": "price", "lt": 20}; docs/live.md has all of them.'),
    ] = None,
    tags: Tags = None,
    states: States = None,
    exposure: Exposure = None,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Rank the items for each query. --filter, --tag and --state choose among them, --exposure shows new items earlier
    or later.

    For example, in stock, below 20, and not of one brand:

      metaxc catalog search CATALOG MODEL 'running shoes' --filter '{"and": [{"field": "in_stock", "eq": true},
      {"field": "price", "lt": 20}, {"not": {"field": "brand", "eq": "x"}}]}'
    """
    with open_catalog(catalog, model, base, cache, threads, read_only=True) as opened:
        results = opened.search(
            queries,
            k,
            offset=offset,
            filter=filter,
            tags=tags or (),
            states=states or (),  # type: ignore[arg-type]
            exposure=exposure,
        )
    print_catalog_hits(queries, results, as_json)


for command in (snapshot, restore, export, migrate, check):
    app.command()(command)
