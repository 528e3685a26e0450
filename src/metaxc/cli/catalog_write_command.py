"""`metaxc catalog` with new items and clicks: one of them, a file of any number, or a file for a running service."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from metaxc.cli.catalog_upkeep_command import Folder, show_progress
from metaxc.cli.shared import (
    Base,
    Cache,
    Json,
    Model,
    Threads,
    load_model,
    print_json,
    print_status,
    set_threads,
)
from metaxc.cli.vector_options import Vector, read_vector
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.catalog import Catalog
    from metaxc.catalog.file_positions import FileProblems

Id = Annotated[str, Argument(help="The item's id.", metavar="ID")]
Tags = Annotated[list[str] | None, Option("--tag", help="A tag of the items; may be repeated.")]
FieldOptions = Annotated[
    list[str] | None,
    Option(
        "--field", help="A field, such as price=19.9 or in_stock=true; may be repeated.", metavar="NAME=VALUE"
    ),
]
NewId = Annotated[str | None, Option("--id", help="The item's id.")]
NewText = Annotated[str | None, Argument(help="The item's text.", metavar="TEXT")]
Query = Annotated[
    str, Argument(help="The query that led to the click; with --vector, any name for it.", metavar="QUERY")
]
ItemFile = Annotated[
    Path | None,
    Option(
        "--file",
        help='A file of items, any number: JSON lines of {"id", "text", "tags", "fields", "vector"}, plain or .gz, or '
        "Parquet; - is JSON lines on stdin.",
    ),
]
SkipBad = Annotated[bool, Option("--skip-bad", help="Leave out lines that cannot be used, and list them.")]
Again = Annotated[bool, Option("--again", help="Read a file once more that was read completely or in part.")]
Url = Annotated[str, Argument(help="Address of the service: http://HOST:PORT.", metavar="URL")]
SHOWN_PROBLEMS = 20


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


def add(
    catalog: Folder,
    model: Model,
    text: NewText = None,
    id: NewId = None,
    tags: Tags = None,
    fields: FieldOptions = None,
    vector: Vector = None,
    file: ItemFile = None,
    skip_bad: SkipBad = False,
    again: Again = False,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Add one novel item, or a file of any number of them. The next search finds them.

    Items that exist with the same content are left unchanged. An item may have its own embedding (--vector, or "vector"
    in a file), beside its text or in place of it; its text is then its id.

    All lines of a file are checked before the first item is added. Then about 256 items at a time are added, each block
    completely or not at all. A run that was stopped resumes when the command runs again with the same file. Lines from
    stdin are checked block by block; repeat a stopped run with the same lines.
    """
    from metaxc.catalog import NewItem

    if file is not None:
        _add_file(file, catalog, model, skip_bad, again, base, threads, cache, as_json)
        return
    if id is None or (text is None and vector is None):
        raise ConfigError(
            "No item given",
            got="no id" if id is None else "no text",
            expected="--id ID TEXT, --id ID --vector FILE, or --file FILE",
            fix="add them",
        )
    embedding = None if vector is None else read_vector(vector)
    item = NewItem(id, text or id, tuple(tags or ()), parse_fields(fields), embedding)
    with open_catalog(catalog, model, base, cache, threads) as opened:
        result = opened.add([item])
    if as_json:
        print_json(asdict(result))
    else:
        print(f"{result.added:,} added, {result.unchanged:,} unchanged")


def _add_file(
    file: Path,
    catalog: Path,
    model: Path,
    skip_bad: bool,
    again: bool,
    base: str | None,
    threads: int,
    cache: Path | None,
    as_json: bool,
) -> None:
    from tqdm import tqdm

    from metaxc.catalog.item_files import add_item_file

    source = sys.stdin.buffer if str(file) == "-" else file
    with (
        open_catalog(catalog, model, base, cache, threads) as opened,
        tqdm(unit=" items", desc="add", dynamic_ncols=True) as bar,
    ):
        result = add_item_file(
            opened,
            source,
            skip_bad=skip_bad,
            again=again,
            progress=lambda done, total: show_progress(bar, done, total),
        )
    _show_problems(result.problems)
    counts = {
        "added": result.added,
        "unchanged": result.unchanged,
        "done_before": result.done_before,
        "problems": len(result.problems),
    }
    if as_json:
        print_json(counts)
    else:
        print(
            f"{result.added:,} added, {result.unchanged:,} unchanged, {result.done_before:,} were read before, "
            f"{len(result.problems):,} lines with problems"
        )


def upload(
    url: Url,
    file: Annotated[
        Path,
        Argument(
            help='Items: JSON lines of {"id", "text", "tags", "fields", "vector"}, plain or .gz, or Parquet; - is JSON '
            "lines on stdin.",
            metavar="FILE",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Send a file of any number of items to a running service, in batches.

    Each batch is added completely or not at all. When the service is busy, or restarts, the command waits and goes on.
    A run that was stopped is repeated with the same file: items that are there with the same content stay as they are.
    A service that requires a token takes it from METAXC_WRITE_TOKEN.
    """
    from tqdm import tqdm

    from metaxc.catalog.item_files import STDIN, read_items
    from metaxc.data.data_problems import Problem, raise_first
    from metaxc.serve.client import Client
    from metaxc.serve.serve_settings import WRITE_TOKEN

    done: Any = None

    def stop(problem: Problem) -> None:
        so_far = "nothing" if done is None else f"{done.added + done.unchanged:,} items"
        fix = f"correct the line, then send the file again; {so_far} of it is in the catalog so far"
        raise_first(file.parent, fix)(problem)

    stream = sys.stdin.buffer if str(file) == "-" else None
    with (
        Client(url, os.environ.get(WRITE_TOKEN) or None) as client,
        tqdm(unit=" items", desc="send", dynamic_ncols=True) as bar,
    ):

        def show(result: Any) -> None:
            nonlocal done
            done = result
            show_progress(bar, result.added + result.unchanged, result.added + result.unchanged)

        items = read_items(STDIN if stream else file, stop, stream)
        result = client.add_all((item for _, item in items), progress=show)
    if as_json:
        print_json(asdict(result))
    else:
        print(f"{result.added:,} added, {result.unchanged:,} unchanged")


def click(
    catalog: Folder,
    model: Model,
    item: Id,
    query: Query,
    vector: Vector = None,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Record a click. From now on the query has a say in which neighbours the item's vector is computed from."""
    embedding = None if vector is None else read_vector(vector)
    with open_catalog(catalog, model, base, cache, threads) as opened:
        result = opened.click(item, query, embedding)
        clicks = opened.get(item).clicks
    if as_json:
        print_json(asdict(result))
    else:
        print(f"click {result.number} recorded: {item} is {result.state} and has {clicks} clicks")


def clicks(
    catalog: Folder,
    model: Model,
    file: Annotated[Path, Argument(help="File of clicks: TSV, JSON lines or Parquet.", metavar="FILE")],
    skip_bad: SkipBad = False,
    again: Again = False,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Record the clicks of a file, any number of them.

    A line is a query's text, an item's id and, if wanted, a time and a count, separated by tabs; or JSON with "query",
    "item", "time", "count" and "vector", the query's embedding (.jsonl); or a row of a .parquet file. Plain or .gz. A
    time is in seconds since 1970 or ISO 8601; without one, the click happens now.

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
    _show_problems(result.problems)
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


def _show_problems(problems: FileProblems) -> None:
    for problem in islice(problems, SHOWN_PROBLEMS):
        print_status(f"left out: {problem}")
