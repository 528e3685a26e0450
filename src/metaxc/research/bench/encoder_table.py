"""The encoder table: the paper's four encoders, each alone, with the paper's IRENE on top, and with metaxc on top.

The three rows of an encoder share its weights, so that what a meta-classifier adds is not confused with what the
encoder has learnt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaxc.emmett import Emmett
from metaxc.encoders.pretrained import Pretrained
from metaxc.encoders.training import EncoderTraining
from metaxc.encoders.training.encoder_record import EncoderRecord
from metaxc.evaluation.protocol import evaluate
from metaxc.evaluation.searches import encoder_search, model_search
from metaxc.irene import Irene
from metaxc.research.bench.context import Context
from metaxc.research.bench.rows import FROZEN as BASE
from metaxc.research.bench.rows import Row, RowResult, Settings, SharedModel, Table, encoder_settings

RECIPES = ("dpr", "ance", "ngame", "maclr")
MOST_STEPS = 300
"""The budget of each encoder, besides the context's passes over the training queries in batches of 128. On two cores a
pass over 10,000 queries takes minutes."""

ENCODER_COST, SEARCH_COST, MODEL_COST, PAPER_COST = 900.0, 10.0, 300.0, 1_800.0


def recipe_training(context: Context, recipe: str) -> EncoderTraining:
    """How the encoder of a recipe is trained."""
    return EncoderTraining.model_validate(
        {
            "recipe": recipe,
            "steps": MOST_STEPS,
            "passes": context.encoder_passes,
            "keep_start": False,  # a row of a trained encoder should not be one of the bare encoder
            "seed": context.config.seed,
        }
    )


def describe_training(encoder: Pretrained) -> str:
    """The note of a row: the budget, and the step after which the encoder was best on held-out items."""
    record = EncoderRecord.load(encoder.folder)
    assert record is not None
    if not record.validation:
        return f"encoder: {record.steps} steps, nothing held out"
    curve = ", ".join(f"{score:.1f} after {step}" for step, score in record.validation)
    best = f"best after {record.best_step} of {record.steps} steps"
    return f"encoder: {best} (mean of P@1 and R@10 on held-out items {curve})"


def _settings(recipe: str, what: str) -> Callable[[Context], Settings]:
    def settings(context: Context) -> Settings:
        training = recipe_training(context, recipe).model_dump()
        return {"training": training, "on top": what, **encoder_settings(context, BASE)}

    return settings


def _alone_row(recipe: str, name: str, shared: SharedModel) -> Row:
    def run(context: Context) -> RowResult:
        encoder, seconds = context.recipe_encoder(recipe_training(context, recipe))
        evaluation = evaluate(encoder_search(encoder, context.dataset), context.dataset)
        return RowResult.from_evaluation(evaluation, seconds, describe_training(encoder))

    return Row(name, name, run, _settings(recipe, "nothing"), cost=SEARCH_COST, uses=(shared,))


def _model_row(name: str, recipe: str, group: str, changes: dict[str, Any], shared: SharedModel) -> Row:
    """A row for a model on a trained encoder; its training time includes the encoder's."""

    def run(context: Context) -> RowResult:
        encoder, seconds = context.recipe_encoder(recipe_training(context, recipe))
        model: Emmett = context.model(context.changed(**changes, base=str(encoder.folder)))
        evaluation = evaluate(model_search(model, context.dataset), context.dataset)
        fit = seconds + float(model.about["seconds"]["fit"])
        return RowResult.from_evaluation(evaluation, fit, describe_training(encoder))

    cost = PAPER_COST if changes else MODEL_COST
    return Row(name, group, run, _settings(recipe, name), cost=cost, uses=(shared,))


def encoder_table() -> Table:
    """The rows of `metaxc bench encoders`."""
    paper = Irene.paper(fine_tuning=None).config.model_dump(exclude={"base", "seed"})
    rows = []
    for recipe in RECIPES:
        name, shared = recipe.upper(), SharedModel(f"{recipe} encoder", ENCODER_COST)
        rows += [
            _alone_row(recipe, name, shared),
            _model_row(f"{name} + IRENE as in the paper", recipe, name, paper, shared),
            _model_row(f"{name} + metaxc", recipe, name, {}, shared),
        ]
    return Table("encoders", "the paper's encoders alone, with the paper's IRENE, and with metaxc", rows)
