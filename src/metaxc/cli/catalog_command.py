"""`metaxc catalog`: live items on the command line. `metaxc serve` offers the same over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

from metaxc.cli.shared import (
    Base,
    Cache,
    Exposure,
    Json,
    Model,
    Overwrite,
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
    from metaxc.catalog.store import Store

app = Typer(
    name="catalog",
    help="Manage a live catalog: a durable store of items that can be searched as soon as they are added.\n\n"
    "To try it:  metaxc catalog create CATALOG MODEL;  metaxc catalog add CATALOG MODEL --id new 'its text';  "
    "metaxc catalog search CATALOG MODEL 'a query';  metaxc catalog click CATALOG MODEL new 'a query'.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, Argument(help="Folder of the catalog.", metavar="CATALOG")]
Snapshot = Annotated[Path, Argument(help="Folder of the snapshot.", metavar="SNAPSHOT")]
Output = Annotated[Path, Argument(help="Folder to write: a new or empty one.", metavar="FOLDER")]
Id = Annotated[str, Argument(help="The item's id.", metavar="ID")]
Ids = Annotated[list[str], Argument(help="Ids of the items.", metavar="ID...")]
NewId = Annotated[str | None, Option("--id", help="The item's id.")]
NewText = Annotated[str | None, Argument(help="The item's text.", metavar="TEXT")]
Query = Annotated[str, Argument(help="The query that led to the click.", metavar="QUERY")]
Queries = Annotated[list[str], Argument(help="One or more queries.", metavar="QUERY...")]
Number = Annotated[int, Argument(help="The click's number, as `click` prints it.", metavar="CLICK")]
Count = Annotated[int, Option("-k", min=1, help="Number of items per query.")]
Tags = Annotated[list[str] | None, Option("--tag", help="A tag of the items; may be repeated.")]
States = Annotated[list[str] | None, Option("--state", help="novel, clicked or observed; may be repeated.")]
ItemFile = Annotated[Path | None, Option("--file", help='JSON lines of {"id", "text", "tags"}; - is stdin.')]
Data = Annotated[Path | None, Option(help="Data set whose training queries previews use as known queries.")]
Clicks = Annotated[int | None, Option(min=1, help="Clicks until an item is observed; default: docs/live.md.")]
ExportFormat = Annotated[str, Option(help="npy, parquet, faiss or pgvector.")]
Accept = Annotated[bool, Option("--accept", help="Give up lost writes and keep the rows that are intact.")]
Replace = Annotated[bool, Option("--overwrite", help="Replace the content of an existing catalog.")]
KNOWN_QUERIES = 2_000
"""Known queries that a preview scores; the time of a preview grows with their number."""


def open_catalog(
    folder: Path, model: Path, base: str | None, cache: Path | None, threads: int, read_only: bool = False
) -> Catalog:
    """Open a catalog with its model."""
    from metaxc.catalog import Catalog

    set_threads(threads)
    return Catalog.open(folder, load_model(model, base, cache, keeps_embeddings=False), read_only=read_only)


def open_store(folder: Path) -> Store:
    """Open the store of a catalog for reading, for commands that need no model."""
    from metaxc.catalog.catalog_folder import CatalogFolder
    from metaxc.catalog.store import Store

    return Store(CatalogFolder(folder).current(), read_only=True)


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
    file: ItemFile = None,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Add one novel item, or a file of them, all or none. The next search finds them.

    Items that exist with the same text and tags are left unchanged.
    """
    from metaxc.catalog import NewItem
    from metaxc.catalog.item_rules import parse_items

    if file is not None:
        items = parse_items(read_lines(file, None, "items"))
    elif text is not None and id is not None:
        items = [NewItem(id, text, tuple(tags or ()))]
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
def delete(
    catalog: Folder, model: Model, ids: Ids, base: Base = None, threads: Threads = 0, cache: Cache = None
) -> None:
    """Delete items with their clicks, all or none."""
    with open_catalog(catalog, model, base, cache, threads) as opened:
        print(f"{opened.delete(ids):,} deleted")


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
    tags: Tags = None,
    states: States = None,
    exposure: Exposure = None,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Rank the items for each query. --tag and --state filter them, --exposure shows new items earlier or later."""
    with open_catalog(catalog, model, base, cache, threads, read_only=True) as opened:
        results = opened.search(
            queries,
            k,
            tags=tags or (),
            states=states or (),  # type: ignore[arg-type]
            exposure=exposure,
        )
    print_catalog_hits(queries, results, as_json)


@app.command()
def snapshot(catalog: Folder, folder: Output, overwrite: Overwrite = False) -> None:
    """Write a copy of the catalog. It carries checksums, and another process may write to the catalog meanwhile."""
    from metaxc.catalog.generations import write_snapshot

    with open_store(catalog) as store:
        write_snapshot(store, folder, overwrite=overwrite)
    print_status(f"snapshot written to {folder}")


@app.command()
def restore(folder: Snapshot, catalog: Folder, overwrite: Replace = False) -> None:
    """Restore a snapshot into a new catalog; with --overwrite into an existing one, whose content it replaces."""
    from metaxc.catalog import Catalog

    Catalog.restore(folder, catalog, overwrite=overwrite)
    print_status(f"restored {catalog} from {folder}")


@app.command()
def export(
    catalog: Folder, folder: Output, format: ExportFormat = "parquet", overwrite: Overwrite = False
) -> None:
    """Export ids and vectors. Another vector database can search them by inner product."""
    from metaxc.catalog.export import export_vectors

    with open_store(catalog) as store:
        count = export_vectors(store, folder, format, overwrite=overwrite)  # type: ignore[arg-type]
    print_status(f"{count:,} items written to {folder}")


@app.command()
def migrate(
    catalog: Folder, model: Model, base: Base = None, threads: Threads = 0, cache: Cache = None
) -> None:
    """Move the catalog to another model. Every vector is computed again, then the catalog switches at once.

    A migration that was stopped resumes when the command runs again; until then the catalog keeps its old model.
    """
    from tqdm import tqdm

    from metaxc.catalog import migrate as migrate_catalog

    set_threads(threads)
    trained = load_model(model, base, cache, keeps_embeddings=False)
    with tqdm(unit=" items", desc="migrate", dynamic_ncols=True) as bar:

        def progress(done: int, total: int) -> None:
            bar.total, bar.n = total, done
            bar.refresh()

        migrated = migrate_catalog(catalog, trained, progress, model_folder=model)
    print_status("migrated" if migrated else "the catalog has this model already")


@app.command()
def check(catalog: Folder, accept: Accept = False) -> None:
    """Verify every row against its checksum."""
    from metaxc.catalog.catalog_folder import CatalogFolder
    from metaxc.catalog.generations import recover

    if accept:
        print_status(f"accepted: {recover(CatalogFolder(catalog)):,} changes")
        return
    with open_store(catalog) as store:
        store.verify()
        print_status(f"intact: {store.sequence:,} changes")
