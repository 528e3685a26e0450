"""`metaxc theory`: what the generalization bounds say of a model. `metaxc theory-study`: whether they hold."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metaxc.cli.shared import (
    Backend,
    Base,
    Cache,
    Data,
    Json,
    Model,
    Seed,
    Threads,
    load_model,
    print_json,
    print_status,
    print_table,
    set_threads,
    with_split,
)

if TYPE_CHECKING:
    from metaxc.research.theory import Account, Verdict
    from metaxc.research.theory.account import Term
    from metaxc.research.theory.terms import Measured


def theory(
    model: Model,
    data: Data,
    delta: Annotated[
        float, typer.Option(help="δ: a bound may fail with this probability.", min=1e-12, max=0.999)
    ] = 0.05,
    kappa: Annotated[
        int | None,
        typer.Option(help="κ: the most clicks of a good sample.  [default: those there are]", min=0),
    ] = None,
    positive_weight: Annotated[
        float, typer.Option(help="C: what a missed click costs against a false one.", min=1e-6)
    ] = 4.0,
    scale: Annotated[float, typer.Option(help="Of the logits.", min=1e-6)] = 20.0,
    draws: Annotated[
        int, typer.Option(help="Draws of signs for the empirical estimate: 2 or more, or 0 for none.", min=0)
    ] = 10,
    base: Base = None,
    seed: Seed = 0,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Compute the generalization bounds of MODEL, trained on DATA, and say which of them mean anything.

    The published statement, its proof, and what can be derived differ: each number says which form it is. Derivations
    and discrepancies: docs/theory.md. With --json: quantities, assumed, deviations, complexities, totals, notes,
    empirical; an infinite value is null.
    """
    from metaxc.data import read_folder
    from metaxc.research.theory import Assumed, account

    set_threads(threads)
    trained = load_model(model, base, cache)
    dataset, _ = with_split(read_folder(data), trained.about.get("split"))
    found = account(trained, dataset, Assumed(delta, kappa, positive_weight, scale), draws=draws, seed=seed)
    if as_json:
        print_json({"data": dataset.name, "model": trained.fingerprint, **found.to_dict()})
        return
    _print_account(found)


def theory_study(
    data: Data,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the result file DATA.json; goes on from it.")
    ],
    images: Annotated[Path | None, typer.Option("--images", help="Folder for the plots (SVG).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small one, to see that it works.")] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Repetitions; more can be added later.  [default: 5, quick 3]", min=2)
    ] = None,
    base: Base = None,
    backend: Backend = "auto",
    threads: Threads = 1,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Train generators on DATA over K, depth, number of observed items, frozen or trained classifiers and kinds of
    sample; measure the gap between held-out and training risk; and judge the paper's four conclusions.

    Takes some minutes of one core once the texts are encoded. With --json: {"settings": …, "verdicts": …}.
    """
    from metaxc.data import read_folder
    from metaxc.encoders import EmbeddingCache, Pretrained
    from metaxc.encoders.pretrained import DEFAULT
    from metaxc.research.theory import Study, run_study, verdicts
    from metaxc.research.theory.plan import QUICK
    from metaxc.research.theory.study_files import read_study, write_study
    from metaxc.research.theory.study_plots import plots
    from metaxc.research.theory.terms import measured

    set_threads(threads)
    dataset = read_folder(data)
    texts = [*dataset.items.texts, *dataset.train.queries.texts]
    encoder = Pretrained(base or DEFAULT, cache=EmbeddingCache(cache), backend=backend, texts=texts)
    study = QUICK if quick else Study()
    study = study if seeds is None else replace(study, seeds=seeds)
    about = {"data": dataset.name, "fingerprint": dataset.fingerprint, "encoder": encoder.fingerprint}
    file = out / f"{dataset.name}{'-quick' if quick else ''}.json"
    out.mkdir(parents=True, exist_ok=True)
    done = read_study(file, about, study)
    wanted = len(study.settings()) * study.seeds

    def each(rows: list[Any]) -> None:
        write_study(file, about, study, rows)
        last = rows[-1]
        print_status(
            f"{len(rows)}/{wanted}: {last.setting}, seed {last.seed}: gap {last.gap:.4f}, R@10 {last.recall:.1f}"
        )

    queries = encoder.encode_queries(dataset.train.queries.texts)
    items = encoder.encode_items(dataset.items.texts)
    rows = run_study(queries, items, dataset.train.clicks, study, done=done, each=each)
    write_study(file, about, study, rows)
    settings, judged = measured(rows, study), verdicts(rows)
    if images is not None:
        images.mkdir(parents=True, exist_ok=True)
        for name, svg in plots(settings, file.stem).items():
            (images / name).write_text(svg, encoding="utf-8")
            print_status(f"{images / name}: written")
    if as_json:
        print_json(
            {"settings": [one.to_dict() for one in settings], "verdicts": [vars(one) for one in judged]}
        )
        return
    _print_study(settings, judged, study.seeds)


def _print_account(found: Account) -> None:
    q = found.quantities
    print_table(
        "What was measured",
        ["", "value"],
        [
            ["N, training queries", f"{q.queries:,}"],
            ["L, observed items", f"{q.items:,}"],
            ["M = N·L, pairs", f"{found.pairs:,}"],
            ["p, share of clicked pairs", f"{q.p:.2e}"],
            ["κ, most clicks of a good sample", f"{found.kappa:,}"],
            ["δ, probability to fail", f"{found.assumed.delta:g}"],
            ["d, dimensions", f"{q.dim:,}"],
            ["K, selected classifiers", f"{q.neighbours:,}"],
            ["B, longest query embedding", f"{q.query_norm:.3f}"],
            ["W, longest selected classifier", f"{q.classifier_norm:.3f}"],
            ["U, longest meta-classifier", f"{q.meta_norm:.3f}"],
        ],
    )
    print_table(
        "What stands for M, the lemma's linear layer",
        ["part", "‖M‖₂", "‖M‖_F", "V", "covered by the lemma"],
        [
            [part.name, f"{part.spectral:.3f}", f"{part.frobenius:.3f}", f"{part.vectors:.3f}", part.covered]
            for part in q.parts
        ],
        right_from=9,
    )
    _print_terms("Theorem 1: deviation of the risk, beside the complexity", found.deviations)
    _print_terms("Complexity of the class (Rademacher)", found.complexities)
    _print_terms("Together: what the risk on novel items may add to the risk trained on", found.totals)
    for note in found.notes:
        print(note)
    if found.loose:
        print_table(
            "How loose: complexity estimated from random signs, on 64 of the model's queries and items at most",
            ["class", "derived bound", "estimate", "bound / estimate"],
            [
                [
                    one.name,
                    f"{one.bound:.4f}",
                    f"{one.estimate.mean:.4f} ±{one.estimate.standard_error:.4f}",
                    f"{one.ratio:.1f}",
                ]
                for one in found.loose
            ],
        )


def _print_terms(title: str, terms: tuple[Term, ...]) -> None:
    words = {None: "", True: "vacuous", False: "says something"}
    print_table(
        title,
        ["", "form", "formula", "value", "verdict"],
        [
            [
                term.name,
                term.form,
                term.formula,
                f"{term.value:,.4f}" if isfinite(term.value) else "∞",
                words[term.vacuous],
            ]
            for term in terms
        ],
        right_from=3,
    )


def _print_study(settings: list[Measured], judged: list[Verdict], seeds: int) -> None:
    print_table(
        f"Mean of {seeds} seeds; risk of a model that knows nothing: 0.693",
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
            for one in settings
        ],
    )
    for verdict in judged:
        print(f"{verdict.conclusion}: {verdict.word.upper()} ({verdict.compared})")
        print(f"  gap {verdict.gap}   held-out risk {verdict.risk}   R@10 {verdict.recall}")
