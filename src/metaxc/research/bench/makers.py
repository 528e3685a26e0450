"""Rows of the kinds that several tables have: a baseline, a recipe, a model that the context keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from copy import copy
from importlib import import_module
from typing import Any

from metaxc.arrays import Floats
from metaxc.emmett import Emmett
from metaxc.encoders import Encoder
from metaxc.errors import ConfigError
from metaxc.evaluation.protocol import Search, evaluate
from metaxc.evaluation.searches import encoder_search, model_search
from metaxc.research.bench.context import Context
from metaxc.research.bench.rows import Outcome, Row, Settings

TERMS, FROZEN, ADAPTED, ORACLE = "terms", "frozen encoder", "adapted encoder", "oracle"
SIZED = "other sizes"
DEFAULT = "metaxc"
KEPT_NOTE = "seconds without what was kept from earlier rows"

ENCODERS: dict[str, Callable[[Context], Encoder]] = {
    FROZEN: lambda context: context.bare,
    ADAPTED: lambda context: context.default.encoder,
}


def recipe_of(context: Context, **changes: Any) -> Settings:
    """Settings of a row that depends on a recipe."""
    encoder = None if context.encoder is None else context.encoder.fingerprint
    return {"recipe": context.changed(**changes).model_dump(), "encoder": encoder}


def encoder_of(context: Context, on: str | None) -> Settings:
    """Settings of a row that depends on an encoder alone."""
    if on is None:
        return {}
    return {"encoder": context.bare.fingerprint} if on == FROZEN else recipe_of(context)


def baseline(name: str, kind: str, group: str, on: str | None = None) -> Row:
    """A row for a class of `metaxc.research.baselines`.

    Args:
        name: Of the row.
        kind: Of the class.
        group: Of the row.
        on: Which of the `ENCODERS` it takes, None for none.
    """

    def run(context: Context) -> Outcome:
        given = [] if on is None else [ENCODERS[on](context)]
        started = time.perf_counter()
        scorer = baseline_class(kind)(*given).fit(context.dataset)
        seconds = time.perf_counter() - started
        return Outcome.of(evaluate(search_of(scorer, context), context.dataset), seconds)

    return Row(name, group, run, lambda context: {"baseline": kind, **encoder_of(context, on)})


def search_of(scorer: Any, context: Context) -> Search:
    """A fitted baseline as a search."""
    search: Search = import_module("metaxc.research.baselines.baseline").scorer_search(
        scorer, len(context.dataset.items)
    )
    return search


def baseline_class(kind: str) -> Any:
    """A baseline's class by its name; one that is not there is an error that says so."""
    try:
        return getattr(import_module("metaxc.research.baselines"), kind)
    except (AttributeError, ImportError) as error:
        raise ConfigError(f"The baseline {kind} is not there", got=str(error)) from error


def alone(name: str, on: str) -> Row:
    """A row for an encoder by itself: dense retrieval."""

    def run(context: Context) -> Outcome:
        encoder = ENCODERS[on](context)
        started = time.perf_counter()
        search = encoder_search(encoder, context.dataset)
        seconds = time.perf_counter() - started
        return Outcome.of(evaluate(search, context.dataset), seconds)

    return Row(name, on, run, lambda context: {"alone": True, **encoder_of(context, on)})


def kept_model(name: str, group: str, model: Callable[[Context], Emmett], **changes: Any) -> Row:
    """A row for a model that the context keeps because other rows need it too."""

    def run(context: Context) -> Outcome:
        made = model(context)
        found = evaluate(model_search(made, context.dataset), context.dataset)
        return Outcome.of(found, float(made.about["seconds"]["fit"]))

    return Row(name, group, run, lambda context: recipe_of(context, **changes), default=not changes)


def recipe(name: str, group: str, changes: Mapping[str, Any]) -> Row:
    """A row for the default recipe with some changes, constants chosen anew."""

    def run(context: Context) -> Outcome:
        started = time.perf_counter()
        model = context.irene(context.changed(**changes)).fit(context.dataset, report=context.report)
        seconds = time.perf_counter() - started
        return Outcome.of(evaluate(model_search(model, context.dataset), context.dataset), seconds, KEPT_NOTE)

    return Row(name, group, run, lambda context: recipe_of(context, **changes))


def with_vectors(model: Emmett, vectors: Floats) -> Emmett:
    """The same model, ranking its items by other vectors."""
    other = copy(model)
    other.vectors = vectors
    return other
