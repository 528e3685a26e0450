"""Parquet files of `metaxc represent`: the options that only they have, and the work on one machine or on Ray."""

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
        metavar="PARQUET",
        help="A Parquet file with a column text, or a folder of such files; --out is a folder then.",
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


def check_parquet_options(
    source: Path | None, out: Path | None, engine: str | None, address: str | None, has_texts: bool
) -> None:
    """Raise where options of Parquet files are given without such files, or beside texts."""
    if source is not None and (out is None or has_texts):
        raise ConfigError(
            "--in reads Parquet files and writes a folder",
            got="--in without --out" if out is None else "--in with texts, --file or --vectors",
            expected="--in PARQUET --out FOLDER",
        )
    if source is None and engine is not None:
        raise ConfigError(
            "--engine is for Parquet files",
            got=f"--engine {engine} without --in",
            expected=f"--in PARQUET --out FOLDER --engine {engine}",
        )
    if address is not None and engine != "ray":
        raise ConfigError(
            "--address is that of a Ray cluster",
            got=f"--address {address} without --engine ray",
            expected=f"--engine ray --address {address}",
        )


def represent_parquet(
    represent: RepresentBatch,
    source: Path,
    out: Path,
    *,
    engine: str | None,
    address: str | None,
    threads: int,
    overwrite: bool,
) -> None:
    """Write the vectors of Parquet files, with a progress bar."""
    from tqdm import tqdm

    from metaxc.extras import import_extra
    from metaxc.scale import RayEngine, represent_files, work_here

    if engine == "ray":
        import_extra("ray.data", "ray")  # before the model is loaded
    chosen = RayEngine(address, threads=threads or 1) if engine == "ray" else work_here
    with tqdm(unit=" rows", desc="represent", dynamic_ncols=True) as bar:
        done = represent_files(
            represent,
            source,
            out,
            engine=chosen,
            overwrite=overwrite,
            report=lambda rows, total: show_progress(bar, rows, total),
        )
    kept = f", {done.kept:,} of them by an earlier run" if done.kept else ""
    print_status(f"{out}: {done.rows:,} rows in {done.partitions:,} files{kept}")
