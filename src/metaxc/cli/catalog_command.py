"""`metaxc catalog`: live items on the command line. The service (`metaxc serve`) does the same over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metaxc.cli.shared import (
    Base,
    Cache,
    Json,
    Model,
    Threads,
    load_model,
    print_json,
    print_status,
    print_table,
    read_lines,
    set_threads,
)
from metaxc.errors import ConfigError, DataError

if TYPE_CHECKING:
    from metaxc.catalog import Catalog, NewItem
    from metaxc.catalog.store import Store

app = typer.Typer(
    name="catalog",
    help="Live items: add, click, search, move to another model.\n\n"
    "A first round:  metaxc catalog create CATALOG MODEL;  metaxc catalog add CATALOG MODEL --id new 'its text';  "
    "metaxc catalog search CATALOG MODEL 'a query';  metaxc catalog click CATALOG MODEL new 'a query'.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Place = Annotated[Path, typer.Argument(help="Catalog folder.", metavar="CATALOG")]
POOL = 2_000
"""Known queries that a preview looks at; the more, the longer it takes."""


@contextmanager
def opened(
    folder: Path, model: Path, base: str | None, cache: Path | None, threads: int, read_only: bool = False
) -> Iterator[Catalog]:
    """An open catalog, closed at the end."""
    from metaxc.catalog import Catalog

    set_threads(threads)
    with Catalog.open(folder, load_model(model, base, cache), read_only=read_only) as catalog:
        yield catalog


@contextmanager
def record_of(folder: Path) -> Iterator[Store]:
    """The record of a catalog, for what needs no model."""
    from metaxc.catalog.generations import CatalogFolder
    from metaxc.catalog.store import Store

    store = Store(CatalogFolder(folder).current(), read_only=True)
    try:
        yield store
    finally:
        store.close()


def known_queries(data: Path | None, most: int = POOL) -> list[str]:
    """Some training queries of a data set, always the same ones."""
    import numpy as np

    from metaxc.data import read_folder

    if data is None:
        return []
    texts = list(dict.fromkeys(read_folder(data).train.queries.texts))
    rows = np.random.default_rng(0).permutation(len(texts))[:most]
    return [texts[row] for row in np.sort(rows)]


@app.command()
def create(
    catalog: Place,
    model: Model,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Data set whose queries a preview looks at: which of them reach a new item?"
        ),
    ] = None,
    observe_after: Annotated[
        int,
        typer.Option(
            "--observe-after", min=1, help="Clicks after which an item has a classifier of its own."
        ),
    ] = 3,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
) -> None:
    """Make a catalog that starts with the model's items."""
    from metaxc.catalog import Catalog, CatalogSettings

    set_threads(threads)
    trained, queries = load_model(model, base, cache), known_queries(data)
    settings = CatalogSettings(observe_after=observe_after)
    with Catalog.create(catalog, trained, settings=settings, queries=queries) as made:
        print_status(f"{made!r}, {len(queries):,} known queries")


@app.command()
def about(catalog: Place, as_json: Json = False) -> None:
    """Print what a catalog holds, after a look at its checksums."""
    from metaxc.catalog.lookups import Lookups

    with record_of(catalog) as store:
        lookups = Lookups(store)
        facts = {
            "items": lookups.counted(),
            "clicks": lookups.click_count(),
            "changes": store.sequence,
            "model": store.facts["model"],
            "dim": lookups.dim,
        }
    if as_json:
        print_json(facts)
        return
    counted = ", ".join(f"{count:,} {state}" for state, count in facts.pop("items").items())  # type: ignore[attr-defined]
    print(f"items: {counted}")
    for name, value in facts.items():
        print(f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {value}")


@app.command()
def add(
    catalog: Place,
    model: Model,
    text: Annotated[str | None, typer.Argument(help="The item's text.", metavar="TEXT")] = None,
    name: Annotated[str | None, typer.Option("--id", help="The item's id.")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be given again.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help='Many items: lines of {"id", "text", "tags"}; - is stdin.')
    ] = None,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Take novel items in: one, or a file of them (all or nothing)."""
    from metaxc.catalog import NewItem

    if file is not None:
        items = _items_of(file)
    elif text is not None and name is not None:
        items = [NewItem(name, text, tuple(tags or ()))]
    else:
        raise ConfigError("No item given", expected="--id ID TEXT, or --file FILE")
    with opened(catalog, model, base, cache, threads) as there:
        done = there.add(items)
    if as_json:
        print_json(asdict(done))
    else:
        print(f"{done.added:,} added, {done.unchanged:,} were there")


def _items_of(file: Path) -> list[NewItem]:
    import json

    from metaxc.catalog import NewItem

    items = []
    for number, line in enumerate(read_lines(file, None, "items"), 1):
        try:
            record = json.loads(line)
            items.append(NewItem(record["id"], record["text"], tuple(record.get("tags", ()))))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                "A line is not an item", got=f"line {number}: {line[:80]}", expected='{"id": …, "text": …}'
            ) from error
    return items


@app.command()
def delete(
    catalog: Place,
    model: Model,
    names: Annotated[list[str], typer.Argument(help="Ids.", metavar="ID...")],
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
) -> None:
    """Withdraw items with their clicks."""
    with opened(catalog, model, base, cache, threads) as there:
        print(f"{there.delete(names):,} deleted")


@app.command()
def click(
    catalog: Place,
    model: Model,
    item: Annotated[str, typer.Argument(help="The item's id.", metavar="ID")],
    query: Annotated[str, typer.Argument(help="The query that clicked it.", metavar="QUERY")],
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Record a click: the query votes for the item's neighbours from now on."""
    with opened(catalog, model, base, cache, threads) as there:
        done = there.click(item, query)
        clicks = there.get(item).clicks
    if as_json:
        print_json(asdict(done))
    else:
        print(
            f"click {done.number}: {item} is {done.state}, {clicks} clicks (undo: metaxc catalog undo … {done.number})"
        )


@app.command()
def undo(
    catalog: Place,
    model: Model,
    number: Annotated[int, typer.Argument(help="The click's number.", metavar="CLICK")],
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
) -> None:
    """Take a click back."""
    with opened(catalog, model, base, cache, threads) as there:
        item = there.undo(number)
    print(f"{item.id} is {item.state}, {item.clicks} clicks")


@app.command()
def search(
    catalog: Place,
    model: Model,
    queries: Annotated[list[str], typer.Argument(help="One or more queries.", metavar="QUERY...")],
    k: Annotated[int, typer.Option("-k", min=1, help="Items per query.")] = 10,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Only items with this tag; may be given again.")
    ] = None,
    states: Annotated[
        list[str] | None, typer.Option("--state", help="Only items in this state: novel, clicked, observed.")
    ] = None,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Rank the catalog's items for each query."""
    with opened(catalog, model, base, cache, threads, read_only=True) as there:
        found = there.search(queries, k, tags=tags or (), states=states or ())  # type: ignore[arg-type]
    if as_json:
        answers = [
            {"query": query, "hits": [asdict(hit) for hit in hits]}
            for query, hits in zip(queries, found, strict=True)
        ]
        print_json({"answers": answers})
        return
    for query, hits in zip(queries, found, strict=True):
        rows = [[f"{hit.score:.3f}", hit.state, hit.id, hit.text] for hit in hits]
        print_table(f"query: {query}", ["score", "state", "id", "item"], rows, right_from=9)


@app.command()
def snapshot(
    catalog: Place,
    folder: Annotated[
        Path, typer.Argument(help="Where the copy goes; what stood there is replaced.", metavar="FOLDER")
    ],
) -> None:
    """Copy a catalog, with checksums, while others write to it."""
    from metaxc.catalog.snapshots import write_snapshot

    with record_of(catalog) as store:
        write_snapshot(store, folder)
    print_status(f"snapshot in {folder}")


@app.command()
def restore(
    folder: Annotated[Path, typer.Argument(help="A snapshot.", metavar="SNAPSHOT")], catalog: Place
) -> None:
    """Let a catalog be what it was at a snapshot; one that is there is replaced at once."""
    from metaxc.catalog import Catalog

    Catalog.restore(folder, catalog)
    print_status(f"{catalog} is what it was")


@app.command()
def export(
    catalog: Place,
    folder: Annotated[Path, typer.Argument(help="Where; what stood there is replaced.", metavar="FOLDER")],
    format: Annotated[str, typer.Option("--format", help="npy, parquet, faiss or pgvector.")] = "parquet",
) -> None:
    """Write ids and vectors for another vector database."""
    from metaxc.catalog.export import export as write

    with record_of(catalog) as store:
        count = write(store, folder, format)  # type: ignore[arg-type]
    print_status(f"{count:,} items in {folder}")


@app.command()
def migrate(
    catalog: Place, model: Model, base: Base = None, threads: Threads = 0, cache: Cache = None
) -> None:
    """Move a catalog to another model: everything is represented anew, then switched at once. Stopped, it goes on."""
    from tqdm import tqdm

    from metaxc.catalog.migrate import migrate as move

    set_threads(threads)
    trained = load_model(model, base, cache)
    with tqdm(unit=" items", desc="migrate", dynamic_ncols=True) as bar:

        def progress(done: int, of: int) -> None:
            bar.total, bar.n = of, done
            bar.refresh()

        moved = move(catalog, trained, progress)
    print_status("moved" if moved else "it is of that model already")


@app.command()
def check(
    catalog: Place,
    accept: Annotated[
        bool,
        typer.Option("--accept", help="Go on with the rows that are whole; what is missing is given up."),
    ] = False,
) -> None:
    """Read every row of a catalog and compare it with its checksum."""
    from metaxc.catalog.generations import CatalogFolder
    from metaxc.catalog.integrity import check_rows, read_facts
    from metaxc.catalog.store import Store

    place = CatalogFolder(catalog)
    if accept:
        lock = place.lock()
        try:
            store = Store.accept(place.current())
            print_status(f"accepted: {store.sequence:,} changes")
            store.close()
        finally:
            lock.release()
        return
    with record_of(catalog) as store, store.snapshot() as connection:
        check_rows(connection, read_facts(connection))
        print_status(f"whole: {store.facts['sequence']} changes")
