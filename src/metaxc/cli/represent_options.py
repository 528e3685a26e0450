"""Parquet files and Lance datasets of `metaxc represent`: the options that only they have, and the work on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from metaxc.cli.catalog_options import show_progress
from metaxc.cli.shared import print_status
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.scale import RepresentBatch

Source = Annotated[
    Path | None,
    Option(
        "--in",
        metavar="SOURCE",
        help="A Parquet file with a column text, or a folder of such files; --out is a folder then. Or a Lance "
        "dataset, items.lance; --out is another one.",
    ),
]
Engine = Annotated[
    Literal["local", "ray"] | None,
    Option(
        "--engine", help="Where --in is worked on: in this process, or on a Ray cluster.  [default: local]"
    ),
]
Address = Annotated[
    str | None,
    Option(
        "--address",
        help="The Ray cluster: HOST:PORT, auto (the one of this machine) or local (a new one on this machine).  "
        "[default: $RAY_ADDRESS, or else auto, or else local]",
    ),
]


def is_lance(path: Path) -> bool:
    """Whether a path names a Lance dataset."""
    return path.suffix == ".lance"


def check_source_options(
    source: Path | None, out: Path | None, engine: str | None, address: str | None, has_texts: bool
) -> None:
    """Raise where options of --in are given without it, or beside texts, and where --in and --out do not fit."""
    if source is not None and (out is None or has_texts):
        raise ConfigError(
            "--in reads Parquet files or a Lance dataset, and --out is what it writes",
            got="--in without --out" if out is None else "--in with texts, --file or --vectors",
            expected="--in PARQUET --out FOLDER, or --in items.lance --out vectors.lance",
        )
    if source is not None and out is not None and is_lance(source) != is_lance(out):
        raise ConfigError(
            "Vectors of a Lance dataset are a Lance dataset, those of Parquet files a folder of Parquet files",
            got=f"--in {source} --out {out}",
            expected="two names that end with .lance, or none",
        )
    if source is None and engine is not None:
        raise ConfigError(
            "--engine is for Parquet files and Lance datasets",
            got=f"--engine {engine} without --in",
            expected=f"--in PARQUET --out FOLDER --engine {engine}",
        )
    if address is not None and engine != "ray":
        raise ConfigError(
            "--address is that of a Ray cluster",
            got=f"--address {address} without --engine ray",
            expected=f"--engine ray --address {address}",
        )


def represent_source(
    represent: RepresentBatch,
    source: Path,
    out: Path,
    *,
    engine: str | None,
    address: str | None,
    threads: int,
    overwrite: bool,
) -> None:
    """Write the vectors of Parquet files or of a Lance dataset, with a progress bar."""
    from tqdm import tqdm

    from metaxc.extras import import_extra
    from metaxc.scale import RayEngine, represent_files, represent_lance, work_here

    if engine == "ray":
        import_extra("ray.data", "ray")  # before the model is loaded
    write = represent_lance if is_lance(source) else represent_files
    chosen = RayEngine(address, threads=threads or 1) if engine == "ray" else work_here
    with tqdm(unit=" rows", desc="represent", dynamic_ncols=True) as bar:
        done = write(
            represent,
            source,
            out,
            engine=chosen,
            overwrite=overwrite,
            report=lambda rows, total: show_progress(bar, rows, total),
        )
    kept = f", {done.kept:,} of them by an earlier run" if done.kept else ""
    parts = "partitions" if is_lance(source) else "files"
    print_status(f"{out}: {done.rows:,} rows in {done.partitions:,} {parts}{kept}")
