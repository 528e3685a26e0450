"""`metaxc catalog` with new items and clicks: one of them, a file of any number, or a file for a running service."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from metaxc.cli.catalog_options import (
    Again,
    CatalogOptions,
    FieldOptions,
    Id,
    SkipBad,
    Tags,
    show_progress,
    takes_catalog,
)
from metaxc.cli.shared import Json, print_json, print_status
from metaxc.cli.vector_options import Vector, read_vector
from metaxc.errors import ConfigError

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
Url = Annotated[str, Argument(help="Address of the service: http://HOST:PORT.", metavar="URL")]
SHOWN_PROBLEMS = 20


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


@takes_catalog
def add(
    given: CatalogOptions,
    text: NewText = None,
    id: NewId = None,
    tags: Tags = None,
    fields: FieldOptions = None,
    vector: Vector = None,
    file: ItemFile = None,
    skip_bad: SkipBad = False,
    again: Again = False,
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
        _add_file(given, file, skip_bad, again, as_json)
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
    with given.open() as opened:
        result = opened.add([item])
    _print_counts(asdict(result), "{added:,} added, {unchanged:,} unchanged", as_json)


def _add_file(given: CatalogOptions, file: Path, skip_bad: bool, again: bool, as_json: bool) -> None:
    from metaxc.catalog.item_files import add_item_file

    source = sys.stdin.buffer if str(file) == "-" else file
    result = _read_file(given, partial(add_item_file, skip_bad=skip_bad, again=again), source, "items", "add")
    _print_counts(
        {
            "added": result.added,
            "unchanged": result.unchanged,
            "done_before": result.done_before,
            "problems": len(result.problems),
        },
        "{added:,} added, {unchanged:,} unchanged, {done_before:,} were read before, {problems:,} lines with problems",
        as_json,
    )


def _read_file(given: CatalogOptions, read: Callable[..., Any], source: Any, things: str, verb: str) -> Any:
    """Read a file into a catalog with a progress bar, and list the lines that were left out.

    Args:
        given: The catalog.
        read: Called with the catalog, the source and `progress`; its result has `problems`.
        source: The file, or a stream.
        things: What is read, for the progress bar.
        verb: What is done with it.
    """
    from tqdm import tqdm

    with given.open() as opened, tqdm(unit=f" {things}", desc=verb, dynamic_ncols=True) as bar:
        result = read(opened, source, progress=lambda done, total: show_progress(bar, done, total))
    for problem in islice(result.problems, SHOWN_PROBLEMS):
        print_status(f"left out: {problem}")
    return result


def _print_counts(counts: Mapping[str, int], sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(dict(counts))
    else:
        print(sentence.format(**counts))


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
    _print_counts(asdict(result), "{added:,} added, {unchanged:,} unchanged", as_json)


@takes_catalog
def click(
    given: CatalogOptions,
    item: Id,
    query: Query,
    vector: Vector = None,
    as_json: Json = False,
) -> None:
    """Record a click. From now on the query has a say in which neighbours the item's vector is computed from."""
    embedding = None if vector is None else read_vector(vector)
    with given.open() as opened:
        result = opened.click(item, query, embedding)
        clicks = opened.get(item).clicks
    if as_json:
        print_json(asdict(result))
    else:
        print(f"click {result.number} recorded: {item} is {result.state} and has {clicks} clicks")


@takes_catalog
def clicks(
    given: CatalogOptions,
    file: Annotated[Path, Argument(help="File of clicks: TSV, JSON lines or Parquet.", metavar="FILE")],
    skip_bad: SkipBad = False,
    again: Again = False,
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
    from metaxc.catalog.click_files import record_click_file

    result = _read_file(
        given, partial(record_click_file, skip_bad=skip_bad, again=again), file, "clicks", "record"
    )
    _print_counts(
        {
            "recorded": result.recorded,
            "recorded_before": result.recorded_before,
            "problems": len(result.problems),
        },
        "{recorded:,} clicks recorded, {recorded_before:,} were recorded before, {problems:,} lines with problems",
        as_json,
    )
