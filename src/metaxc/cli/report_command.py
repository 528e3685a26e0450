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
    out: Annotated[Path, typer.Option("--out", help="HTML file to write; what stood there is replaced.")],
    bench: Annotated[
        list[Path] | None,
        typer.Option("--bench", help="JSON-lines results of other systems to show; may be given again."),
    ] = None,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
) -> None:
    """Evaluate MODEL on DATA and write one HTML file: accuracy beside the bare encoder, gains and losses item by
    item, slices, latency, configuration.

    The file stands alone (no network, no scripts), prints, and reads on a phone. Needs: pip install 'metaxc[report]'
    """
    from metaxc.data import read_folder
    from metaxc.research.report import gather, provenance, read_bench, render
    from metaxc.research.report.plots import need_altair

    need_altair()
    if out.is_dir() or not out.parent.is_dir():
        raise ConfigError(
            "The report cannot be written there", got=out, expected="a file in a folder that exists"
        )
    set_threads(threads)
    rows = read_bench(bench or [])
    trained = load_model(model, base, cache)
    dataset, _ = with_split(read_folder(data), trained.about.get("split"))
    numbers = gather(trained, _bare(trained, base, cache), dataset, bench=rows, print_status=print_status)
    print_status("draw")
    page = render(
        numbers, provenance(trained, dataset, _command(model, data, out, bench, base, threads, cache))
    )
    out.write_text(page, encoding="utf-8")
    print_status(f"{out}: written")


def _bare(model: Emmett, base: str | None, cache: Path | None) -> Encoder:
    """What the model began with: the pretrained weights, or the user's own vectors."""
    from metaxc.encoders import EmbeddingCache, frozen_base

    source = base or model.about["config"]["base"]
    return frozen_base(model.encoder, source, EmbeddingCache(cache), model.items.texts)


def _command(
    model: Path,
    data: Path,
    out: Path,
    bench: list[Path] | None,
    base: str | None,
    threads: int,
    cache: Path | None,
) -> str:
    """The command as it was typed, options in one order."""
    words = ["metaxc", "report", str(model), str(data), "--out", str(out)]
    for path in bench or []:
        words += ["--bench", str(path)]
    for option, value in (("--base", base), ("--threads", threads or None), ("--cache", cache)):
        if value is not None:
            words += [option, str(value)]
    return shlex.join(words)
