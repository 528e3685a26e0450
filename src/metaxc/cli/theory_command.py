"""`metaxc theory`: the generalization bounds of a model. `metaxc theory-study`: measures whether they hold."""

from __future__ import annotations

from dataclasses import asdict, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from metaxc.cli.config_options import config_option, given_options
from metaxc.cli.shared import (
    Backend,
    Base,
    Cache,
    Data,
    Json,
    Model,
    Seed,
    Threads,
    invalid_option,
    load_model,
    print_json,
    print_status,
    print_table,
    set_threads,
    with_split,
)
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.research.theory import ModelBounds, Verdict
    from metaxc.research.theory.model_bounds import BoundTerm
    from metaxc.research.theory.study import StudyRow
    from metaxc.research.theory.study_results import SettingSummary

ASSUMPTIONS = "metaxc.research.theory.model_bounds:BoundAssumptions"


def theory(
    model: Model,
    data: Data,
    delta: Annotated[float | None, config_option(f"{ASSUMPTIONS}.delta")] = None,
    kappa: Annotated[int | None, config_option(f"{ASSUMPTIONS}.kappa")] = None,
    positive_weight: Annotated[float | None, config_option(f"{ASSUMPTIONS}.positive_weight")] = None,
    scale: Annotated[float | None, config_option(f"{ASSUMPTIONS}.scale")] = None,
    draws: Annotated[
        int,
        typer.Option(help="Random sign draws for the empirical estimate: at least 2, or 0 for none.", min=0),
    ] = 10,
    base: Base = None,
    seed: Seed = 0,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Compute the generalization bounds of MODEL, which was trained on DATA, and show which of them are vacuous.

    The published statement, its proof and what can be derived differ: each number names its form. Derivations and
    discrepancies: docs/theory.md. With --json: quantities, assumed, deviations, complexities, totals, notes,
    empirical; an infinite value is null.
    """
    set_threads(threads)
    from pydantic import ValidationError

    from metaxc.data import read_folder
    from metaxc.research.theory import BoundAssumptions, compute_bounds

    trained = load_model(model, base, cache)
    dataset, _ = with_split(read_folder(data), trained.about.get("split"))
    given = given_options(delta=delta, kappa=kappa, positive_weight=positive_weight, scale=scale)
    try:
        assumptions = BoundAssumptions.model_validate(given)
    except ValidationError as error:
        raise invalid_option(error) from error
    bounds = compute_bounds(trained, dataset, assumptions, draws=draws, seed=seed)
    if as_json:
        print_json({"data": dataset.name, "model": trained.fingerprint, **bounds.to_dict()})
        return
    _print_bounds(bounds)


def theory_study(
    data: Data,
    out: Annotated[
        Path,
        typer.Option("--out", help="Folder for the result file DATA.json; an existing file is continued."),
    ],
    images: Annotated[
        Path | None, typer.Option("--images", help="Folder for the charts (SVG); requires metaxc[research].")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a small study, to check that everything works.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(help="Repetitions; more can be added later.  [default: depends on --quick]", min=2),
    ] = None,
    generator: Annotated[
        str,
        typer.Option(
            help="What is trained: transformer, which starts at the combine; or post_norm, the paper's layer "
            "(result file DATA-post_norm.json)."
        ),
    ] = "transformer",
    base: Base = None,
    backend: Backend = "auto",
    threads: Threads = 1,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Train generators on DATA with different K, depths, numbers of observed items, frozen or trained classifiers and
    kinds of samples; measure the gap between held-out and training risk; and test the paper's four conclusions.

    Takes some minutes on one core once the texts are encoded. With --json: {"settings": …, "verdicts": …}.
    """
    set_threads(threads)
    import metaxc as package
    from metaxc.artifacts import write_atomically
    from metaxc.data import read_folder
    from metaxc.encoders import EmbeddingCache, Pretrained
    from metaxc.encoders.pretrained import DEFAULT
    from metaxc.output_claims import claim_file
    from metaxc.research.charts import draw_study
    from metaxc.research.code_version import git_commit
    from metaxc.research.theory import Study, reach_verdicts, run_study
    from metaxc.research.theory.study import QUICK_STUDY, GeneratorKind
    from metaxc.research.theory.study_results import read_study, summarise_settings, write_study

    if generator not in get_args(GeneratorKind):
        raise ConfigError("Unknown generator", got=generator, expected=" or ".join(get_args(GeneratorKind)))
    dataset = read_folder(data)
    texts = [*dataset.items.texts, *dataset.train.queries.texts]
    encoder = Pretrained(base or DEFAULT, cache=EmbeddingCache(cache), backend=backend, texts=texts)
    study = QUICK_STUDY if quick else Study()
    kind: GeneratorKind = "post_norm" if generator == "post_norm" else "transformer"
    study = replace(study, generator=kind, seeds=study.seeds if seeds is None else seeds)
    about = {"data": dataset.name, "fingerprint": dataset.fingerprint, "encoder": encoder.fingerprint}
    suffix = f"{'' if kind == 'transformer' else f'-{kind}'}{'-quick' if quick else ''}"
    file = out / f"{dataset.name}{suffix}.json"
    out.mkdir(parents=True, exist_ok=True)
    done = read_study(file, about, study)
    total = len(study.settings()) * study.seeds
    options = f"--generator {kind} --seeds {study.seeds}{' --quick' if quick else ''}"
    origin = {
        "commit": git_commit(Path(package.__file__).parent),
        "command": f"metaxc theory-study {dataset.name} {options}",
    }

    def save(rows: list[StudyRow]) -> None:
        write_study(file, about, study, rows, origin)
        last = rows[-1]
        print_status(
            f"{len(rows)}/{total}: {last.setting}, seed {last.seed}: gap {last.gap:.4f}, R@10 {last.recall:.1f}"
        )

    queries = encoder.encode_queries(dataset.train.queries.texts)
    items = encoder.encode_items(dataset.items.texts)
    rows = run_study(queries, items, dataset.train.clicks, study, done=done, after_row=save)
    write_study(file, about, study, rows, origin)
    summaries, verdicts = summarise_settings(rows, study), reach_verdicts(rows)
    if images is not None:
        images.mkdir(parents=True, exist_ok=True)
        for name, svg in draw_study(summaries, file.stem).items():
            write_atomically(claim_file(images / name, b"<svg", overwrite=True), svg.encode())
            print_status(f"{images / name}: written")
    if as_json:
        print_json(
            {
                "settings": [summary.to_dict() for summary in summaries],
                "verdicts": [asdict(verdict) for verdict in verdicts],
            }
        )
        return
    _print_study(summaries, verdicts, study.seeds)


def _print_bounds(bounds: ModelBounds) -> None:
    q = bounds.quantities
    print_table(
        "Measured quantities",
        ["", "value"],
        [
            ["N, training queries", f"{q.queries:,}"],
            ["L, observed items", f"{q.items:,}"],
            ["M = N·L, pairs", f"{bounds.pairs:,}"],
            ["p, share of clicked pairs", f"{q.p:.2e}"],
            ["κ, largest number of clicks in a good sample", f"{bounds.kappa:,}"],
            ["δ, probability of failure", f"{bounds.assumptions.delta:g}"],
            ["d, dimensions", f"{q.dim:,}"],
            ["K, selected classifiers", f"{q.neighbours:,}"],
            ["B, largest norm of a query embedding", f"{q.query_norm:.3f}"],
            ["W, largest norm of a selected classifier", f"{q.classifier_norm:.3f}"],
            ["U, largest norm of a meta-classifier", f"{q.meta_norm:.3f}"],
        ],
    )
    print_table(
        "The role of M, the lemma's linear layer",
        ["part", "‖M‖₂", "‖M‖_F", "V", "covered by the lemma"],
        [
            [part.name, f"{part.spectral:.3f}", f"{part.frobenius:.3f}", f"{part.vectors:.3f}", part.covered]
            for part in q.parts
        ],
        right_from=9,
    )
    _print_terms("Theorem 1: deviation term", bounds.deviations)
    _print_terms("Rademacher complexity of the class", bounds.complexities)
    _print_terms("Sum: upper bound on the risk for novel items minus the training risk", bounds.totals)
    for note in bounds.notes:
        print(note)
    if bounds.estimates:
        print_table(
            "Tightness: complexity estimated from random signs, on at most 64 of the model's queries and items",
            ["class", "derived bound", "estimate", "bound / estimate"],
            [
                [
                    one.name,
                    f"{one.bound:.4f}",
                    f"{one.estimate.mean:.4f} ±{one.estimate.standard_error:.4f}",
                    f"{one.ratio:.1f}",
                ]
                for one in bounds.estimates
            ],
        )


def _print_terms(title: str, terms: tuple[BoundTerm, ...]) -> None:
    verdicts = {None: "", True: "vacuous", False: "not vacuous"}
    print_table(
        title,
        ["", "form", "formula", "value", "verdict"],
        [
            [
                term.name,
                term.form,
                term.formula,
                f"{term.value:,.4f}" if isfinite(term.value) else "∞",
                verdicts[term.vacuous],
            ]
            for term in terms
        ],
        right_from=3,
    )


def _print_study(summaries: list[SettingSummary], verdicts: list[Verdict], seeds: int) -> None:
    print_table(
        f"Mean of {seeds} seeds; risk of a model that scores every pair 0: 0.693",
        ["", "training risk", "held-out risk", "gap ± 95 %", "R@10", "published term", "derived term"],
        [
            [
                one.name,
                f"{one.train_risk:.4f}",
                f"{one.new_risk:.4f}",
                f"{one.gap:.4f} ±{one.half:.4f}",
                f"{one.recall:.1f}",
                f"{one.published:.2f}",
                f"{one.derived:.3f}",
            ]
            for one in summaries
        ],
    )
    for verdict in verdicts:
        print(f"{verdict.conclusion}: {verdict.word.upper()} ({verdict.compared})")
        print(f"  gap {verdict.gap}   held-out risk {verdict.risk}   R@10 {verdict.recall}")
