"""`metaxc evaluate` and `metaxc report`: how accurate a model is, as a table or as one HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metaxc.cli.shared import (
    AllowOverlap,
    Base,
    Cache,
    Data,
    Device,
    Exposure,
    Json,
    Model,
    Overwrite,
    Threads,
    check_exposure,
    load_model,
    print_json,
    print_status,
    print_table,
    set_threads,
    with_split,
)
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.data import Dataset
    from metaxc.emmett import Emmett
    from metaxc.encoders import Encoder
    from metaxc.evaluation import ByKind, Evaluation, PairedDifference, PropensityComparison, Search

    Differences = Mapping[str, Mapping[str, PairedDifference]]


SHOWN_METRICS = ("P@1", "P@5", "R@10", "R@100", "nDCG@10", "PSP@1")
NAMES = {"zero_shot": "Zero-shot (novel items only)", "generalized": "Generalized (all items)"}
KIND_COLUMNS = [(kind, metric) for kind in ("novel", "observed") for metric in ("R@10", "P@1")]
MODEL = "metaxc"
ENCODER = "encoder"
NEED_BARE_ENCODER = ("SemSup-XC",)
"""Baselines that read the tokens of a pretrained encoder; the others use the model's own encoder, or none."""


def evaluate(
    model: Model,
    data: Data,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines/--no-baselines",
            help="Also evaluate the model's encoder alone and, where that is adapted, the bare pretrained encoder.",
        ),
    ] = True,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            help="Also evaluate another system, trained on the same clicks; can be repeated. One of: BM25, TF-IDF, "
            "ZestXML, Siamese, NGAME, DEXA, ESZSL, Neighbour kernel, SemSup-XC (pip install 'metaxc[research]'); or "
            "encoder: the bare pretrained encoder where --baselines does not have it (a static encoder has no "
            'pretrained base of its own), printed under "baseline" with --json.'
        ),
    ] = None,
    exposure: Exposure = None,
    test_queries: Annotated[
        int | None,
        typer.Option(help="Evaluate on so many of the test queries, drawn at random.  [default: all]", min=1),
    ] = None,
    allow_overlap: AllowOverlap = False,
    base: Base = None,
    threads: Threads = 0,
    device: Device = "auto",
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Evaluate MODEL on the test queries of DATA, beside its encoder alone and the bare pretrained encoder.

    Three kinds of tables, percent:

    (1) Accuracy when only the novel items are ranked (zero-shot) and when all items are ranked (generalized). P@k:
    share of relevant items among the first k results. R@k: share of a query's relevant items among the first k.

    (2) Novel and observed items in the same ranking: most clicks are on observed items, so the generalized mean can be
    high while novel items are never shown. "novel R@10": over queries with a novel relevant item, the share of these
    items among the first ten of ALL items; "novel P@1": the first result is one of them; "observed" alike. H: harmonic
    mean of novel and observed R@10, high only if both are. "novel in top 10": share of novel items among the first ten
    results, relevant or not.

    (3) Recall at 10 by training clicks of the item: of all relevant query-item pairs whose item has so many clicks in
    training, the share found among the first ten. Novel items have none.

    Where generalized PSP@1, which counts rarely clicked items most, is more than 10 % below the bare encoder, a line
    says so, and which exposure of the curve that training saved would restore it.

    With --json: {"zero_shot": {"P@1": …}, "generalized": {"P@1": …, "novel": {"P@1", "R@10", "queries"}, "observed": …,
    "H": …, "novel_share": …, "by_clicks": {"1-2": {"value", "interval", "pairs", "items"}}, "propensity": {"PSP@1",
    "below", "restored_by": …}}, "exposure": …, "intervals": …, "conventions": …}, and the same of each baseline under
    "baselines", with "model_minus_baseline": the paired difference on the same queries.

    A model that was trained on the test part (its queries, its clicks, or items counted as novel) is refused: the
    figures would be too high. "overlap" of --json says what was compared.
    """
    set_threads(threads)
    from metaxc.data import read_folder
    from metaxc.data.sampling import sample_dataset
    from metaxc.devices import set_device
    from metaxc.emmett.model_identity import describe_novel
    from metaxc.encoders import EmbeddingCache, frozen_base
    from metaxc.evaluation import BARE_ENCODER, encoder_baselines, encoder_search, evaluate_model
    from metaxc.evaluation import evaluate as evaluate_search

    set_device(device)
    others = _find_baselines(baseline or [])
    exposure = check_exposure(exposure)
    trained = load_model(model, base, cache)
    dataset, _ = with_split(read_folder(data), trained.about.get("split"))
    if test_queries is not None:
        dataset = sample_dataset(dataset, len(dataset.items), len(dataset.train), test_queries)
        print_status(f"evaluating on {len(dataset.test or ()):,} of the test queries")
    encoders = encoder_baselines(trained.encoder) if baselines else {}
    was_fine_tuned = baselines and bool(trained.about.get("fine_tuning"))
    shows_bare = ENCODER in others or was_fine_tuned
    needs_bare = shows_bare or any(name in NEED_BARE_ENCODER for name in others)
    bare = encoders.get(BARE_ENCODER)
    if needs_bare and bare is None:
        source = base or trained.about["config"]["base"]
        bare = frozen_base(trained.encoder, source, EmbeddingCache(cache), dataset.items.texts)
    if shows_bare and bare is not None:
        encoders[BARE_ENCODER] = bare
    print_status(f"evaluating {MODEL}")
    used = 0.0 + (trained.calibration.exposure if exposure is None else exposure)  # −0.0 becomes 0.0
    own = evaluate_model(trained, dataset, exposure=used, allow_overlap=allow_overlap)
    results = {MODEL: own}
    for name, encoder in encoders.items():
        print_status(f"evaluating {name}")
        results[name] = evaluate_search(encoder_search(encoder, dataset), dataset)
    propensity = _compare_propensity(trained, dataset, results, used)
    for name in others:
        if name != ENCODER:
            print_status(f"training and evaluating {name}")
            given = bare if name in NEED_BARE_ENCODER else trained.encoder
            results[name] = evaluate_search(_fit_baseline(name, given, dataset), dataset)
    differences = _compare_with_baselines(results)
    if as_json:
        printed: dict[str, Any] = {"exposure": used, **results[MODEL].to_dict()}
        if propensity is not None:
            printed["generalized"]["propensity"] = propensity.to_dict()
        if ENCODER in others:
            printed["baseline"] = {"name": ENCODER, **results[BARE_ENCODER].to_dict()}
        printed["baselines"] = {
            name: {**results[name].to_dict(), "model_minus_baseline": _differences_dict(found)}
            for name, found in differences.items()
        }
        novel = {"novel_items": trained.about.get("novel_items")}
        print_json({"data": dataset.name, "model": trained.fingerprint, **novel, **printed})
        return
    _print_overlap(own)
    for setting, name in NAMES.items():
        _print_accuracy(setting, name, results)
    _print_kinds(results)
    _print_clicks(results)
    for name, found in differences.items():
        _print_losses(name, found)
    if propensity is not None and propensity.below:
        print(f"{propensity.describe()}\n")
    novel = trained.about.get("novel_items") or {}
    if novel.get("without_clicks"):
        print(f"Novel items of the model: {describe_novel(novel)}. Zero-shot ranks those held out.\n")
    print(results[MODEL].conventions)
    _print_overlap(own)


def _find_baselines(names: Sequence[str]) -> list[str]:
    """The names of the baselines as tables have them; an unknown one is an error."""
    if not names:
        return []
    from metaxc.research.baselines import BASELINES

    known = {_comparable(name): name for name in (ENCODER, *BASELINES)}
    unknown = [name for name in names if _comparable(name) not in known]
    if unknown:
        raise ConfigError(
            "Unknown baseline",
            got=unknown[0],
            expected=f"{ENCODER}, {', '.join(BASELINES)}",
            fix="check the name",
        )
    return list(dict.fromkeys(known[_comparable(name)] for name in names))


def _comparable(name: str) -> str:
    return name.lower().replace("-", "").replace(" ", "").replace("_", "")


def _fit_baseline(name: str, encoder: Encoder | None, dataset: Dataset) -> Search:
    """A baseline of the registry, trained on the data set's clicks on observed items."""
    from metaxc.research.baselines import BASELINES, scorer_search

    return scorer_search(BASELINES[name].build(encoder).fit(dataset), len(dataset.items))


def _print_overlap(result: Evaluation) -> None:
    """Say before and after the tables what of the test part the model was trained on."""
    overlap = result.overlap
    if overlap is None or (overlap.is_fair and overlap.is_recorded and not overlap.repeated_clicks):
        return
    mark = "Note" if overlap.is_fair else "NOT A FAIR RESULT (--allow-overlap)"
    print(f"{mark}: {overlap.describe()}.\n")


def _compare_with_baselines(results: Mapping[str, Evaluation]) -> dict[str, Differences]:
    """Model minus each baseline on the same queries."""
    from metaxc.evaluation import paired_intervals, paired_values

    own = paired_values(results[MODEL])
    return {
        name: paired_intervals(own, paired_values(result))
        for name, result in results.items()
        if name != MODEL
    }


def _compare_propensity(
    model: Emmett, dataset: Dataset, results: Mapping[str, Evaluation], exposure: float
) -> PropensityComparison | None:
    """PSP@1 of the model and of the encoder that is the least trained one: the bare encoder where there is one."""
    from metaxc.evaluation import compare_propensity

    *_, (baseline, other) = results.items()
    if baseline == MODEL:
        return None
    own = results[MODEL]
    return compare_propensity(
        model, dataset, own, other, baseline, exposure=exposure, print_status=print_status
    )


def _differences_dict(differences: Differences) -> dict[str, Any]:
    return {
        setting: {metric: {**one._asdict(), "below": one.below} for metric, one in metrics.items()}
        for setting, metrics in differences.items()
    }


def _print_accuracy(setting: str, name: str, results: Mapping[str, Evaluation]) -> None:
    counts = results[MODEL].counts[setting]
    rows = [
        [
            system,
            *(_cell(result[setting][metric], result.intervals[setting][metric]) for metric in SHOWN_METRICS),
        ]
        for system, result in _model_last(results)
    ]
    title = f"{name}: {counts['queries']:,} queries, {counts['items']:,} items; percent ± 95 % interval"
    print_table(title, ["", *SHOWN_METRICS], rows)


def _print_kinds(results: Mapping[str, Evaluation]) -> None:
    columns = [
        "P@1",
        "R@10",
        *(f"{kind}\n{metric}" for kind, metric in KIND_COLUMNS),
        "H",
        "novel in\ntop 10",
    ]
    rows = []
    for system, result in _model_last(results):
        by_kind, overall = _by_kind(result), result["generalized"]
        figures = [*(by_kind.kinds[kind][metric] for kind, metric in KIND_COLUMNS), by_kind.harmonic_mean]
        whole = [_cell(overall[metric]) for metric in ("P@1", "R@10")]
        share = _cell(by_kind.novel_share.value)
        rows.append([system, *whole, *(_cell(*figure) for figure in figures), share])
    novel, observed = (len(rows) for rows in _by_kind(results[MODEL]).queries.values())
    queries = f"{novel:,} queries for a novel item, {observed:,} for an observed one"
    print_table(f"Novel and observed items in the same ranking: {queries}; percent", ["", *columns], rows)


def _print_clicks(results: Mapping[str, Evaluation]) -> None:
    slices = {system: _by_kind(result).by_clicks for system, result in _model_last(results)}
    rows = [
        [system, *(_cell(one.value, one.interval) for one in found.values())]
        for system, found in slices.items()
    ]
    rows.append(["query-item pairs", *(f"{one.pairs:,}" for one in slices[MODEL].values())])
    print_table("Recall at 10 by training clicks of the item; percent", ["", *slices[MODEL]], rows)


def _by_kind(result: Evaluation) -> ByKind:
    """The split of the generalized ranking, which this command always evaluates."""
    assert result.by_kind is not None
    return result.by_kind


def _print_losses(baseline: str, differences: Differences) -> None:
    """Say where the model is below a baseline beyond the interval of the paired difference."""
    losses = [
        f"{setting.replace('_', '-')} {metric} {one.difference:+.1f} ({one.low:+.1f} to {one.high:+.1f})"
        for setting, metrics in differences.items()
        for metric, one in metrics.items()
        if one.below
    ]
    if losses:
        print(f"Below the {baseline} on the same queries (points, 95 % interval): {', '.join(losses)}.\n")


def _model_last(results: Mapping[str, Evaluation]) -> list[tuple[str, Evaluation]]:
    return list(results.items())[::-1]


def _cell(value: float | None, interval: tuple[float, float] | None = None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" + ("" if interval is None else f" ±{(interval[1] - interval[0]) / 2:.1f}")


def report(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="HTML file to write.")],
    bench: Annotated[
        list[Path] | None,
        typer.Option(
            "--bench", help="JSON-lines file with results of other systems to show; can be repeated."
        ),
    ] = None,
    allow_overlap: AllowOverlap = False,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    overwrite: Overwrite = False,
) -> None:
    """Evaluate MODEL on DATA and write one HTML file: accuracy compared with the bare encoder, gains and losses of
    single items, slices, latency and configuration.

    The file needs no network and no scripts, and can be printed or read on a phone. Requires: pip install
    'metaxc[research]'
    """
    set_threads(threads)
    from metaxc.artifacts import write_atomically
    from metaxc.data import read_folder
    from metaxc.output_claims import claim_file
    from metaxc.research.charts import import_altair
    from metaxc.research.report import build_report, collect_provenance, read_bench_rows, render_page
    from metaxc.research.report.page import REPORT_MARK

    import_altair()
    place = claim_file(out, REPORT_MARK, overwrite=overwrite, sources=[model, data])
    rows = read_bench_rows(bench or [])
    trained = load_model(model, base, cache)
    dataset, _ = with_split(read_folder(data), trained.about.get("split"))
    bare = _bare_encoder(trained, base, cache)
    numbers = build_report(
        trained, bare, dataset, bench=rows, allow_overlap=allow_overlap, print_status=print_status
    )
    print_status("drawing")
    command = _format_command(model, data, out, bench, base, threads, cache, allow_overlap)
    page = render_page(numbers, collect_provenance(trained, dataset, command))
    write_atomically(place, page.encode())
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
    allow_overlap: bool,
) -> str:
    """The command that the user typed, with its options in a fixed order."""
    words = ["metaxc", "report", str(model), str(data), "--out", str(out)]
    for path in bench or []:
        words += ["--bench", str(path)]
    for option, value in (("--base", base), ("--threads", threads or None), ("--cache", cache)):
        if value is not None:
            words += [option, str(value)]
    words += ["--allow-overlap"] if allow_overlap else []
    return shlex.join(words)
