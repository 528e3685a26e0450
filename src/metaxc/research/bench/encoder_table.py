"""The encoder table: the paper's four encoders, each alone, with the paper's IRENE on top, and with metaxc on top.

The three rows of an encoder share its weights, so that what a meta-classifier adds is not confused with what the
encoder has learnt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaxc.emmett import Emmett
from metaxc.encoders.training import EncoderTraining
from metaxc.evaluation.protocol import evaluate
from metaxc.evaluation.searches import encoder_search, model_search
from metaxc.irene import Irene
from metaxc.research.bench.context import Context
from metaxc.research.bench.rows import FROZEN as BASE
from metaxc.research.bench.rows import Row, RowResult, Settings, SharedModel, Table, encoder_settings

RECIPES = ("dpr", "ance", "ngame", "maclr")
PASSES, MOST_STEPS = 1.0, 300
"""The budget of each encoder: one pass over the training queries in batches of 128, at most 300 steps. On two cores a
pass over 10,000 queries takes minutes."""

ENCODER_COST, SEARCH_COST, MODEL_COST, PAPER_COST = 900.0, 10.0, 300.0, 1_800.0


def recipe_training(recipe: str, seed: int) -> EncoderTraining:
    """How the encoder of a recipe is trained."""
    return EncoderTraining.model_validate(
        {"recipe": recipe, "steps": MOST_STEPS, "passes": PASSES, "seed": seed}
    )


def _settings(recipe: str, what: str) -> Callable[[Context], Settings]:
    def settings(context: Context) -> Settings:
        training = recipe_training(recipe, context.config.seed).model_dump()
        return {"training": training, "on top": what, **encoder_settings(context, BASE)}

    return settings


def _alone_row(recipe: str, name: str, shared: SharedModel) -> Row:
    def run(context: Context) -> RowResult:
        encoder, seconds = context.recipe_encoder(recipe_training(recipe, context.config.seed))
        evaluation = evaluate(encoder_search(encoder, context.dataset), context.dataset)
        return RowResult.from_evaluation(evaluation, seconds)

    return Row(name, name, run, _settings(recipe, "nothing"), cost=SEARCH_COST, uses=(shared,))


def _model_row(name: str, recipe: str, group: str, changes: dict[str, Any], shared: SharedModel) -> Row:
    """A row for a model on a trained encoder; its training time includes the encoder's."""

    def run(context: Context) -> RowResult:
        encoder, seconds = context.recipe_encoder(recipe_training(recipe, context.config.seed))
        model: Emmett = context.model(context.changed(**changes, base=str(encoder.folder)))
        evaluation = evaluate(model_search(model, context.dataset), context.dataset)
        return RowResult.from_evaluation(evaluation, seconds + float(model.about["seconds"]["fit"]))

    cost = PAPER_COST if changes else MODEL_COST
    return Row(name, group, run, _settings(recipe, name), cost=cost, uses=(shared,))


def encoder_table() -> Table:
    """The rows of `metaxc bench encoders`."""
    paper = Irene.paper().config.model_dump(exclude={"base", "seed"})
    rows = []
    for recipe in RECIPES:
        name, shared = recipe.upper(), SharedModel(f"{recipe} encoder", ENCODER_COST)
        rows += [
            _alone_row(recipe, name, shared),
            _model_row(f"{name} + IRENE as in the paper", recipe, name, paper, shared),
            _model_row(f"{name} + metaxc", recipe, name, {}, shared),
        ]
    return Table("encoders", "the paper's encoders alone, with the paper's IRENE, and with metaxc", rows)
