"""`metaxc evaluate` and `metaxc report`: how accurate a model is, as a table or as one HTML page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metaxc.cli.shared import (
    Base,
    Cache,
    Data,
    Json,
    Model,
    Threads,
    load_model,
    print_json,
    print_status,
    print_table,
    set_threads,
    with_split,
)
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.evaluation import Evaluation
if TYPE_CHECKING:
    from metaxc.emmett import Emmett
    from metaxc.encoders import Encoder


SHOWN_METRICS = ("P@1", "P@5", "R@10", "R@100", "nDCG@10", "PSP@1")
NAMES = {"zero_shot": "zero-shot (novel items only)", "generalized": "generalized (all items)"}


def evaluate(
    model: Model,
    data: Data,
    baseline: Annotated[
        str | None, typer.Option(help="Also evaluate: encoder (the bare pretrained encoder).")
    ] = None,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Evaluate MODEL on the test queries of DATA, ranking only the novel items and ranking all items.

    With --json: {"zero_shot": {"P@1": …}, "generalized": {…}, "intervals": …, "conventions": …} in percent, and
    the same of the baseline under "baseline".
    """
    set_threads(threads)
    from metaxc.data import read_folder
    from metaxc.encoders import EmbeddingCache, frozen_base
    from metaxc.evaluation import encoder_search, model_search
    from metaxc.evaluation import evaluate as evaluate_search

    if baseline not in (None, "encoder"):
        raise ConfigError("Unknown baseline", got=baseline, expected="encoder")
    trained = load_model(model, base, cache)
    dataset, _ = with_split(read_folder(data), trained.about.get("split"))
    results = {"metaxc": evaluate_search(model_search(trained, dataset), dataset)}
    if baseline:
        source = base or trained.about["config"]["base"]
        bare = frozen_base(trained.encoder, source, EmbeddingCache(cache), dataset.items.texts)
        results["bare encoder"] = evaluate_search(encoder_search(bare, dataset), dataset)
    if as_json:
        printed: dict[str, Any] = results["metaxc"].to_dict()
        if baseline:
            printed["baseline"] = {"name": baseline, **results["bare encoder"].to_dict()}
        print_json({"data": dataset.name, "model": trained.fingerprint, **printed})
        return
    for setting, name in NAMES.items():
        _print_results(setting, name, results)
    print(results["metaxc"].conventions)


def _print_results(setting: str, name: str, results: dict[str, Evaluation]) -> None:
    counts = results["metaxc"].counts[setting]
    rows = []
    for system, result in reversed(results.items()):
        cells = []
        for metric in SHOWN_METRICS:
            low, high = result.intervals[setting][metric]
            cells.append(f"{result[setting][metric]:.1f} ±{(high - low) / 2:.1f}")
        rows.append([system, *cells])
    title = f"{name}: {counts['queries']:,} queries, {counts['items']:,} items; percent ± 95 % interval"
    print_table(title, ["", *SHOWN_METRICS], rows)


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
