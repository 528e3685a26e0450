"""The parts of a benchmark: tables of named rows, and the kinds of rows that several tables have.

A row is a function from the context to its result. It states everything that determines the result in addition to the
data (`settings`) and the source files that decide it (`sources`), so that a finished row is not run again, and one
whose settings or code changed is.

Rows also state what they cost, so that many rows can be run cheapest first: the seconds of one core on a data set of
20,000 queries (icd10cm, debian_related), by order of magnitude.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from metaxc.arrays import Floats
from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.encoders import Encoder
from metaxc.evaluation.paired import PairedValues, paired_values
from metaxc.evaluation.protocol import Evaluation, evaluate
from metaxc.evaluation.searches import Search, encoder_search, model_search
from metaxc.research.baselines import BASELINES, BM25, RRF_CONSTANT, fuse_searches, scorer_search
from metaxc.research.bench.context import Context
from metaxc.research.code_version import BASELINES as BASELINE_SOURCES
from metaxc.research.code_version import MEASUREMENT, METHOD_SOURCES, MODEL_SOURCES

Settings = dict[str, Any]
TERMS, FROZEN, ADAPTED, ORACLE = "terms", "frozen encoder", "adapted encoder", "oracle"
FINE_TUNED = "fine-tuned encoder"
SIZES_GROUP = "other sizes"
DEFAULT = "metaxc"
TIME_NOTE = "training time excludes encoders that earlier rows trained"

ENCODERS: dict[str, Callable[[Context], Encoder]] = {
    FROZEN: lambda context: context.bare,
    ADAPTED: lambda context: context.default.encoder,
}


class SharedModel(NamedTuple):
    """A model that several rows use; the first of them trains it.

    Args:
        name: Tells it from others.
        cost: Seconds of training, as in `Row.cost`.
    """

    name: str
    cost: float


DEFAULT_MODEL = SharedModel("default model", 600.0)
FROZEN_MODEL = SharedModel("frozen model", 350.0)
FINE_TUNED_ENCODER = SharedModel("fine-tuned encoder", 500.0)

BASELINE_COST = {
    "TF-IDF": 10.0,
    "BM25": 15.0,
    "Siamese": 10.0,
    "NGAME": 35.0,
    "Neighbour kernel": 45.0,
    "ESZSL": 55.0,
    "ZestXML": 80.0,
    "DEXA": 100.0,
    "SemSup-XC": 105.0,
}
COMBINE_COST, TRANSFORMER_COST = 250.0, 900.0
"""Of a row that trains a model on an encoder which is there already, by its generator."""


@dataclass(frozen=True)
class RowResult:
    """The result of a row.

    Args:
        metrics: By setting ("zero_shot", "generalized") and metric, percent, as in `Evaluation.metrics_dict`; other
            measures by their own names.
        intervals: [low, high] of the 95 % intervals, under the same keys.
        counts: Number of evaluated "queries" and of ranked "items", by setting.
        seconds: Wall-clock time, by stage.
        per_query: Values for each query that can be compared with those of other rows.
        note: What a reader of the numbers must know.
    """

    metrics: Mapping[str, Mapping[str, Any]]
    intervals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    per_query: PairedValues = field(default_factory=dict, repr=False)
    note: str = ""

    @classmethod
    def from_evaluation(cls, evaluation: Evaluation, fit: float = 0.0, note: str = "") -> RowResult:
        """The result of an evaluation.

        Args:
            evaluation: The evaluation.
            fit: Seconds of the training before it.
            note: What a reader of the numbers must know.
        """
        seconds = {"fit": fit, "search": sum(evaluation.seconds.values())}
        metrics, intervals = evaluation.metrics_dict(), evaluation.intervals_dict()
        return cls(metrics, intervals, evaluation.counts, seconds, paired_values(evaluation), note)


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Args:
        name: Unique in its table.
        group: The heading that it belongs to.
        run: Computes the result.
        settings: Everything that determines the result in addition to the data set, as JSON.
        default: Whether this is the model that the other rows are compared with.
        other_split: Whether it has novel items of its own, so that it cannot be compared with the default.
        sources: The source files that decide the result (`metaxc.research.code_version`).
        cost: Seconds without `uses`; it decides nothing but the order and the estimated time.
        uses: Models that it shares with other rows.
    """

    name: str
    group: str
    run: Callable[[Context], RowResult]
    settings: Callable[[Context], Settings]
    default: bool = False
    other_split: bool = False
    sources: tuple[str, ...] = MODEL_SOURCES
    cost: float = 1.0
    uses: tuple[SharedModel, ...] = ()


@dataclass(frozen=True)
class Table:
    """Rows that belong together, in the order of running; the default model first, where there is one, so that the
    other rows can be compared with it immediately.

    Args:
        name: The name of the command.
        about: What the table shows, one sentence.
        rows: The rows.
    """

    name: str
    about: str
    rows: Sequence[Row]


def config_settings(context: Context, **changes: Any) -> Settings:
    """The settings of a row that depends on a configuration."""
    encoder = None if context.encoder is None else context.encoder.fingerprint
    return {"recipe": context.changed(**changes).model_dump(), "encoder": encoder}


def encoder_settings(context: Context, encoder: str | None) -> Settings:
    """The settings of a row that depends only on one of the `ENCODERS`, or on none."""
    if encoder is None:
        return {}
    return {"encoder": context.bare.fingerprint} if encoder == FROZEN else config_settings(context)


def evaluate_row(build_search: Callable[[], Search], dataset: Dataset, note: str = "") -> RowResult:
    """Evaluate a search; the time to build it is reported as training time."""
    started = time.perf_counter()
    search = build_search()
    seconds = time.perf_counter() - started
    return RowResult.from_evaluation(evaluate(search, dataset), seconds, note)


def shared_models(encoder: str | None) -> tuple[SharedModel, ...]:
    """The models that one of the `ENCODERS` takes."""
    return (DEFAULT_MODEL,) if encoder == ADAPTED else ()


def baseline_row(name: str, baseline: str, group: str, encoder: str | None = None) -> Row:
    """A row for one of the `BASELINES`.

    Args:
        name: The row's name.
        baseline: The baseline's name in the registry.
        group: The row's group.
        encoder: Which of the `ENCODERS` it uses, None for none.
    """
    entry = BASELINES[baseline]

    def run(context: Context) -> RowResult:
        given = None if encoder is None else ENCODERS[encoder](context)

        def build_search() -> Search:
            return scorer_search(entry.build(given).fit(context.dataset), len(context.dataset.items))

        return evaluate_row(build_search, context.dataset)

    def settings(context: Context) -> Settings:
        return {"baseline": entry.kind.__name__, **encoder_settings(context, encoder)}

    return Row(
        name,
        group,
        run,
        settings,
        sources=METHOD_SOURCES if encoder is not None else (*MEASUREMENT, *BASELINE_SOURCES),
        cost=BASELINE_COST[baseline],
        uses=shared_models(encoder),
    )


def encoder_row(name: str, encoder: str) -> Row:
    """A row for one of the `ENCODERS` alone: dense retrieval."""

    def run(context: Context) -> RowResult:
        given = ENCODERS[encoder](context)
        return evaluate_row(lambda: encoder_search(given, context.dataset), context.dataset)

    def settings(context: Context) -> Settings:
        return {"alone": True, **encoder_settings(context, encoder)}

    return Row(name, encoder, run, settings, cost=BASELINE_COST["Siamese"], uses=shared_models(encoder))


def fused_row(name: str, group: str, encoder: str) -> Row:
    """A row for an encoder and BM25, fused by their ranks.

    Args:
        name: The row's name.
        group: The row's group.
        encoder: FROZEN or FINE_TUNED.
    """
    tuned = encoder == FINE_TUNED

    def run(context: Context) -> RowResult:
        given, seconds = context.fine_tuned if tuned else (context.bare, 0.0)
        dataset = context.dataset
        started = time.perf_counter()
        by_terms = scorer_search(BM25().fit(dataset), len(dataset.items), matches_only=True)
        search = fuse_searches([encoder_search(given, dataset), by_terms])
        seconds += time.perf_counter() - started
        return RowResult.from_evaluation(
            evaluate(search, dataset), seconds, describe_fine_tuning(context, tuned)
        )

    def settings(context: Context) -> Settings:
        own = fine_tuning_settings(context) if tuned else encoder_settings(context, FROZEN)
        return {"fused with": "BM25", "rrf": RRF_CONSTANT, **own}

    uses = (FINE_TUNED_ENCODER,) if tuned else ()
    return Row(name, group, run, settings, sources=METHOD_SOURCES, cost=25.0, uses=uses)


def fine_tuned_row(name: str) -> Row:
    """A row for the fine-tuned encoder alone."""

    def run(context: Context) -> RowResult:
        encoder, seconds = context.fine_tuned
        evaluation = evaluate(encoder_search(encoder, context.dataset), context.dataset)
        return RowResult.from_evaluation(evaluation, seconds, describe_fine_tuning(context, True))

    return Row(
        name,
        FINE_TUNED,
        run,
        fine_tuning_settings,
        sources=METHOD_SOURCES,
        cost=BASELINE_COST["Siamese"],
        uses=(FINE_TUNED_ENCODER,),
    )


def fine_tuning_settings(context: Context) -> Settings:
    """The settings of a row with the fine-tuned encoder: the budget of its training, among others."""
    return {
        "fine_tuning": context.fine_tuning.model_dump(),
        "seed": context.config.seed,
        **encoder_settings(context, FROZEN),
    }


def describe_fine_tuning(context: Context, tuned: bool) -> str:
    """The note of a row with or without the fine-tuned encoder."""
    config = context.fine_tuning
    return f"fine-tuned for {config.steps:,} steps of {config.batch} pairs" if tuned else ""


def model_row(
    name: str, group: str, model: Callable[[Context], Emmett], shared: SharedModel, **changes: Any
) -> Row:
    """A row for a model that the context keeps because other rows need it too."""

    def run(context: Context) -> RowResult:
        trained = model(context)
        evaluation = evaluate(model_search(trained, context.dataset), context.dataset)
        return RowResult.from_evaluation(evaluation, float(trained.about["seconds"]["fit"]))

    def settings(context: Context) -> Settings:
        return config_settings(context, **changes)

    return Row(name, group, run, settings, default=not changes, cost=10.0, uses=(shared,))


def config_row(name: str, group: str, changes: Mapping[str, Any], cost: float | None = None) -> Row:
    """A row for the default configuration with some changes, its constants tuned again.

    Args:
        name, group: The row's.
        changes: What differs from the default configuration; nested settings as dicts.
        cost: Seconds of the training; by the kind of the generator when None.
    """

    def run(context: Context) -> RowResult:
        def build_search() -> Search:
            irene = context.irene(context.changed(**changes))
            return model_search(irene.fit(context.dataset, report=context.report), context.dataset)

        return evaluate_row(build_search, context.dataset, TIME_NOTE)

    def settings(context: Context) -> Settings:
        return config_settings(context, **changes)

    by_generator = TRANSFORMER_COST if changes.get("generator") == "transformer" else COMBINE_COST
    return Row(name, group, run, settings, cost=by_generator if cost is None else cost)


def with_vectors(model: Emmett, vectors: Floats) -> Emmett:
    """The same model, ranking its items by other vectors."""
    other = copy(model)
    other.vectors = vectors
    return other
