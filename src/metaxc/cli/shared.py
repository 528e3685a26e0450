"""What the commands share: options, printing, and how a data folder gets its novel items."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from metaxc.errors import ConfigError, DataError

if TYPE_CHECKING:
    from pydantic import ValidationError

    from metaxc.catalog.records import CatalogHit, Item
    from metaxc.data import Dataset
    from metaxc.emmett import Emmett

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
Threads = Annotated[int, typer.Option("--threads", min=0, help="CPU threads; 0 takes all cores.")]
Device = Annotated[
    str,
    typer.Option("--device", help="What encodes and trains: cpu, cuda, or auto: a GPU where there is one."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed; same seed and threads, same result.")]
Cache = Annotated[
    Path | None,
    typer.Option("--cache", help="Folder for embeddings.  [default: $METAXC_CACHE or ~/.cache/metaxc]"),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite", help="Replace an earlier result of the same kind; nothing else is ever replaced."
    ),
]
Model = Annotated[Path, typer.Argument(help="Model folder.", metavar="MODEL")]
Data = Annotated[Path, typer.Argument(help="Data set folder.", metavar="DATA")]
Base = Annotated[
    str | None, typer.Option("--base", help="Folder of the pretrained weights, when they have moved.")
]

AllowOverlap = Annotated[
    bool,
    typer.Option(
        "--allow-overlap",
        help="Evaluate although the model was trained on a part of the test part; the result is marked.",
    ),
]
Exposure = Annotated[
    float | None,
    typer.Option(
        "--exposure",
        help="Added to the score of an item that nobody has clicked, and less with each click; more shows new "
        "items earlier.  [default: the value chosen in training]",
    ),
]
Backend = Annotated[
    str,
    typer.Option(
        "--backend",
        help="What computes the pretrained encoder: torch; onnx (ONNX Runtime, same figures); onnx-int8 (fastest); or "
        "auto: the fastest that agrees with torch on a sample of DATA's texts. The model is served by the same one.",
    ),
]


def invalid_option(error: ValidationError, prefix: str = "") -> ConfigError:
    """The error for a value that a configuration model refused, named by its option.

    Args:
        error: What the model said.
        prefix: What the option's name has before the name of the field.
    """
    first = error.errors()[0]
    reason = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return ConfigError("These options do not fit together", got=repr(first["input"]), expected=reason)
    name = str(first["loc"][-1]).replace("_", "-")
    return ConfigError(f"Invalid value for --{prefix}{name}", got=repr(first["input"]), expected=reason)


def whole_number(text: str) -> int:
    """The value of an option that counts something, also written as 1e6, 1.25e6 or 1_000_000."""
    try:
        value = float(text)
        if value.is_integer():
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter(f"{text!r} is not a whole number, such as 1000000 or 1e6")


def check_exposure(exposure: float | None) -> float | None:
    """The option's value, or None where it was not given; one out of range is a `DataError`."""
    from metaxc.catalog.item_rules import validate_exposure

    return None if exposure is None else validate_exposure(exposure)


def print_status(line: str) -> None:
    """Print one line of progress to stderr."""
    print(line, file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Print one JSON object to stdout."""
    print(json.dumps(value, ensure_ascii=False))


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right_from: int = 1
) -> None:
    """Print a table to stdout; columns from `right_from` on are right-aligned."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place >= right_from else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def print_catalog_hits(queries: Sequence[str], found: Sequence[Sequence[CatalogHit]], as_json: bool) -> None:
    """Print what a search in a live catalog, or in a vector store that is equal to one, has found for each query."""
    answers = list(zip(queries, found, strict=True))
    if as_json:
        print_json(
            {"answers": [{"query": query, "hits": list(map(asdict, hits))} for query, hits in answers]}
        )
        return
    for query, hits in answers:
        print_items(f"query: {query}", hits)


def print_items(title: str, items: Sequence[CatalogHit | Item]) -> None:
    """Print items as a table, those that a search has found with their scores; with fields where one has any."""
    from metaxc.data.item_fields import dump_fields

    columns = {
        "score": [f"{item.score:.3f}" for item in items if hasattr(item, "score")],
        "state": [item.state for item in items],
        "id": [item.id for item in items],
        "item": [item.text for item in items],
        "fields": [dump_fields(item.fields) for item in items] if any(item.fields for item in items) else [],
    }
    shown = {name: cells for name, cells in columns.items() if cells}
    print_table(title, list(shown), list(zip(*shown.values(), strict=True)), right_from=9)


THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that numeric libraries read when they are loaded; values that a user has set stay."""


def set_threads(threads: int) -> None:
    """Set the number of threads of all numeric libraries; called before any of them is imported."""
    count = threads or len(os.sched_getaffinity(0))
    for name in THREADS:
        os.environ.setdefault(name, str(count))
    import torch

    torch.set_num_threads(count)


def load_model(
    folder: Path, base: str | None, cache: Path | None, *, keeps_embeddings: bool = True
) -> Emmett:
    """Load a model with the embedding cache. Catalogs and the service keep no embeddings there: their requests and
    items do not come again, and a client must not be able to fill the disk by reading."""
    from metaxc.emmett import Emmett
    from metaxc.encoders import EmbeddingCache

    return Emmett.load(folder, base=base, cache=EmbeddingCache(cache, keeps_embeddings=keeps_embeddings))


def read_lines(file: Path | None, texts: Sequence[str] | None, what: str) -> list[str]:
    """Texts from the command line, or one per line from a file ("-" for stdin)."""
    if file is not None:
        from metaxc.data.text_lines import limited_lines

        try:
            with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as opened:
                lines = [line.decode("utf-8-sig").rstrip("\r\n") for line in limited_lines(opened)]
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"The file of {what} cannot be read", got=f"{file}: {error}") from error
        return [line for line in lines if line.strip()]
    if not texts:
        raise ConfigError(f"No {what} given", expected="texts, or --file FILE (- for stdin)")
    return list(texts)


def with_split(dataset: Dataset, how: dict[str, Any] | None) -> tuple[Dataset, dict[str, Any] | None]:
    """The data set with novel items and a test part: its own where it has both, else split as `how` says.

    Returns:
        The data set, and the split that was made; None where none was needed.
    """
    from metaxc.data import split

    if dataset.novel is not None and dataset.test is not None:
        return dataset, None
    how = how or {"novel": 0.1, "test": 0.15, "by": "random", "seed": 0}
    novel_ids = None if dataset.novel is None else [dataset.items.ids[row] for row in dataset.novel_rows]
    made, report = split(
        dataset, novel=how["novel"], test=how["test"], by=how["by"], seed=how["seed"], novel_ids=novel_ids
    )
    if how.get("hash") not in (None, report.hash):
        if report.cut_at is not None and "cut_at" not in how:
            raise DataError(
                "The model's split by time cannot be repeated",
                got="a model of an earlier version, which held out whole queries",
                expected="a split that cuts the events at a date",
                fix="train the model again, or evaluate it on a folder with a test part",
            )
        raise DataError(
            "The data set is not the one the model was trained on",
            got=f"split {report.hash[:16]}",
            expected=f"split {how['hash'][:16]}",
            fix="evaluate on the folder that was given to train",
        )
    cut = {"cut_at": report.cut_at} if how["by"] == "time" else {}
    return made, {**how, **cut, "hash": report.hash, "counts": report.to_dict()}
