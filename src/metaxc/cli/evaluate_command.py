"""`metaxc evaluate`: zero-shot and generalized accuracy on test queries."""

from __future__ import annotations

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
    print_table,
    set_threads,
    with_split,
)
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.evaluation import Evaluation

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
