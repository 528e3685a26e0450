"""`metaxc report`: a model on one page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metaxc.cli.shared import (
    Base,
    Cache,
    Data,
    Model,
    Threads,
    load_model,
    print_status,
    set_threads,
    with_split,
)
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.emmett import Emmett
    from metaxc.encoders import Encoder


def report(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="HTML file to write; an existing file is replaced.")],
    bench: Annotated[
        list[Path] | None,
        typer.Option(
            "--bench", help="JSON-lines file with results of other systems to show; can be repeated."
        ),
    ] = None,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
) -> None:
    """Evaluate MODEL on DATA and write one HTML file: accuracy compared with the bare encoder, gains and losses of
    single items, slices, latency and configuration.

    The file needs no network and no scripts, and can be printed or read on a phone. Requires: pip install
    'metaxc[research]'
    """
    set_threads(threads)
    from metaxc.data import read_folder
    from metaxc.research.charts import import_altair
    from metaxc.research.report import build_report, collect_provenance, read_bench_rows, render_page

    import_altair()
    if out.is_dir() or not out.parent.is_dir():
        raise ConfigError(
            "The report cannot be written",
            got=out,
            expected="a file in an existing folder",
            fix="create the folder, or choose another --out",
        )
    rows = read_bench_rows(bench or [])
    trained = load_model(model, base, cache)
    dataset, _ = with_split(read_folder(data), trained.about.get("split"))
    bare = _bare_encoder(trained, base, cache)
    numbers = build_report(trained, bare, dataset, bench=rows, print_status=print_status)
    print_status("drawing")
    command = _format_command(model, data, out, bench, base, threads, cache)
    page = render_page(numbers, collect_provenance(trained, dataset, command))
    out.write_text(page, encoding="utf-8")
    print_status(f"{out}: written")


def _bare_encoder(model: Emmett, base: str | None, cache: Path | None) -> Encoder:
    """The encoder before training: the pretrained weights, or the user's own vectors."""
    from metaxc.encoders import EmbeddingCache, frozen_base

    source = base or model.about["config"]["base"]
    return frozen_base(model.encoder, source, EmbeddingCache(cache), model.items.texts)


def _format_command(
    model: Path,
    data: Path,
    out: Path,
    bench: list[Path] | None,
    base: str | None,
    threads: int,
    cache: Path | None,
) -> str:
    """The command that the user typed, with its options in a fixed order."""
    words = ["metaxc", "report", str(model), str(data), "--out", str(out)]
    for path in bench or []:
        words += ["--bench", str(path)]
    for option, value in (("--base", base), ("--threads", threads or None), ("--cache", cache)):
        if value is not None:
            words += [option, str(value)]
    return shlex.join(words)
