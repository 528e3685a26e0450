"""The parts of a benchmark: tables of named rows, and the kinds of rows that several tables have.

A row is a function from the context to its result. It states everything that determines the result in addition to the
data (`settings`), so that a finished row is not run again, and one whose settings changed is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from metaxc.arrays import Floats
from metaxc.artifacts import json_digest
from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.encoders import Encoder
from metaxc.evaluation.paired import PairedValues, paired_values
from metaxc.evaluation.protocol import Evaluation, evaluate
from metaxc.evaluation.searches import Search, encoder_search, model_search
from metaxc.research.baselines import BASELINES, scorer_search
from metaxc.research.bench.context import Context

Settings = dict[str, Any]
TERMS, FROZEN, ADAPTED, ORACLE = "terms", "frozen encoder", "adapted encoder", "oracle"
SIZES_GROUP = "other sizes"
DEFAULT = "metaxc"
TIME_NOTE = "training time excludes encoders that earlier rows trained"

ENCODERS: dict[str, Callable[[Context], Encoder]] = {
    FROZEN: lambda context: context.bare,
    ADAPTED: lambda context: context.default.encoder,
}


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
    """

    name: str
    group: str
    run: Callable[[Context], RowResult]
    settings: Callable[[Context], Settings]
    default: bool = False
    other_split: bool = False

    def digest(self, context: Context) -> str:
        """Identifies the settings: same digest, same result on the same data."""
        return json_digest(self.settings(context))


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

    return Row(name, group, run, settings)


def encoder_row(name: str, encoder: str) -> Row:
    """A row for one of the `ENCODERS` alone: dense retrieval."""

    def run(context: Context) -> RowResult:
        given = ENCODERS[encoder](context)
        return evaluate_row(lambda: encoder_search(given, context.dataset), context.dataset)

    return Row(name, encoder, run, lambda context: {"alone": True, **encoder_settings(context, encoder)})


def model_row(name: str, group: str, model: Callable[[Context], Emmett], **changes: Any) -> Row:
    """A row for a model that the context keeps because other rows need it too."""

    def run(context: Context) -> RowResult:
        trained = model(context)
        evaluation = evaluate(model_search(trained, context.dataset), context.dataset)
        return RowResult.from_evaluation(evaluation, float(trained.about["seconds"]["fit"]))

    return Row(name, group, run, lambda context: config_settings(context, **changes), default=not changes)


def config_row(name: str, group: str, changes: Mapping[str, Any]) -> Row:
    """A row for the default configuration with some changes, its constants tuned again."""

    def run(context: Context) -> RowResult:
        def build_search() -> Search:
            irene = context.irene(context.changed(**changes))
            return model_search(irene.fit(context.dataset, report=context.report), context.dataset)

        return evaluate_row(build_search, context.dataset, TIME_NOTE)

    return Row(name, group, run, lambda context: config_settings(context, **changes))


def with_vectors(model: Emmett, vectors: Floats) -> Emmett:
    """The same model, ranking its items by other vectors."""
    other = copy(model)
    other.vectors = vectors
    return other
