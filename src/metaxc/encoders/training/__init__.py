"""Training of encoders on clicks. This module has the settings; it imports nothing heavy, so that the command line can
take its options from them.

`trainer` is the one trainer, composed of `batches`, `negatives` and `losses`; `recipes` has the four recipes of the
paper; `metaxc.encoders.learning` trains the adapter's towers with it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

LOGQ_HELP = "logQ correction: subtract this × log(clicks) from the item's logit when it is a negative"


class TrainingConfig(BaseModel):
    """How the trainer trains any encoder with any recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = Field(1_000, ge=1, description="number of training steps")
    learning_rate: float = Field(5e-5, gt=0, description="Adam's learning rate, which falls linearly to 0")
    warmup: float = Field(
        0.0, ge=0, lt=1, description="share of the steps in which the learning rate rises first"
    )
    logq_correction: float = Field(0.75, ge=0, le=1, description=LOGQ_HELP)
    graph_tokens: int = Field(
        16_384,
        ge=0,
        description="batches with more tokens cache their gradients, so that a graph does not fill a laptop's memory",
    )
    stop_after: int | None = Field(
        None, ge=1, description="steps after which training ends, with the learning rate of that step"
    )
    validate_every: int = Field(0, ge=0, description="steps between two validations; 0 for no validation")
    patience: int = Field(
        3, ge=1, description="training stops after this many validations without a better score"
    )
    keep_start: bool = Field(
        True, description="keep the weights before the first step where no later ones have a better score"
    )
    checkpoint_seconds: float = Field(
        60.0, ge=0, description="seconds between two checkpoints, which is the most that a kill loses"
    )


MOST_STEPS = 800
"""Steps of an adapter at most, as long as every query is seen once: set to limit the time, not measured."""


class AdapterConfig(BaseModel):
    """How the adapter's towers are trained; docs/decisions.md has the reasons."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(
        5, ge=1, description="passes over the queries, with one clicked item per query and pass"
    )
    most_steps: int | None = Field(
        None,
        ge=1,
        description=f"the limit on steps; if not given {MOST_STEPS}, or one pass over the queries if that is more",
    )
    batch: int = Field(1024, ge=2, description="pairs per step; every other item of the batch is a negative")
    learning_rate: float = Field(2e-3, gt=0, description="Adam's learning rate, which falls linearly to 0")
    logq_correction: float = Field(
        0.75,
        ge=0,
        le=1,
        description=LOGQ_HELP,
        validation_alias=AliasChoices("logq_correction", "popularity"),  # older files have the second
        serialization_alias="popularity",
    )
    scale: float = Field(
        12.0, gt=0, description="multiplies the cosine similarities to give logits; the start value, learnt"
    )
    token_dropout: float = Field(0.1, ge=0, lt=1, description="share of the tokens left out while training")
    bigrams: int = Field(
        50_000,
        ge=0,
        description="pairs of word pieces that follow each other in three texts or more and get a vector of their own, "
        "at most, the most frequent first; a static encoder has none",
    )
    extent: float | None = Field(
        None,
        ge=0,
        le=1,
        description="how far the trained adapter is applied, from 0 (the pretrained encoder) to 1 (as trained); chosen "
        "on pseudo-novel items if not given",
    )
    word_matches: float | None = Field(
        None,
        ge=0,
        le=10,
        description="how much shared rare words count beside what the towers have learnt: 0 for nothing, 1 for as "
        "much; chosen on pseudo-novel items if not given",
    )
    clustered: bool = Field(False, description="near queries share a batch, as in NGAME")
    mined: bool = Field(
        False, description="hard negatives from an index that is refreshed while training, as in ANCE"
    )

    def steps(self, queries: int) -> int:
        """The steps of training with so many queries."""
        one_pass = max(1, queries // max(1, min(self.batch, queries)))
        most = max(MOST_STEPS, one_pass) if self.most_steps is None else self.most_steps
        return min(one_pass * self.epochs, most)


class RecipeOptions(BaseModel):
    """Options that only some recipes use."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    negatives: int = Field(1, ge=0, description="hard negatives per query, for ance and for dpr with bm25")
    bm25: bool = Field(False, description="for dpr: add hard negatives found by BM25")
    refreshes: int = Field(
        4, ge=1, description="how often training refreshes ance's index or ngame's clusters"
    )
    cluster: int = Field(
        32,
        ge=1,
        description="for ngame: the number of near queries that share a batch at the end of training",
    )
    finetune: bool = Field(
        False, description="for maclr: spend the second half of the steps on clicks, as dpr does"
    )


VALIDATIONS = 4
"""Validations of an encoder while it is trained, the one of its start not counted."""


class EncoderTraining(BaseModel):
    """How `metaxc encoder train` trains a transformer. The defaults are for minutes on a CPU; with a GPU, raise steps
    and batch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: Literal["dpr", "ance", "ngame", "maclr"] = Field(
        "dpr",
        description="how to train. dpr: in-batch negatives, the cheapest. ance: adds the items that the encoder itself "
        "ranks too high. ngame: near queries share a batch. maclr: learns from texts alone, without clicks",
    )
    steps: int = Field(300, ge=1, description="training steps, at most; a few hundred take minutes on a CPU")
    passes: float | None = Field(
        None, gt=0, description="passes over the queries, within `steps`; if not given, `steps` alone decides"
    )
    batch: int = Field(128, ge=2, description="pairs per step; every other item of the batch is a negative")
    learning_rate: float = Field(
        1e-4,
        gt=0,
        description="Adam's learning rate; it rises during the first tenth of the steps, then falls to 0",
    )
    scale: float = Field(
        20.0, gt=0, description="multiplies the cosine similarities to give logits; the start value, learnt"
    )
    max_tokens: int = Field(
        64, ge=4, description="longer texts are cut to this length, in training and afterwards"
    )
    holdout: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="share of the observed items and queries held out for validation; 0 turns early stopping off",
    )
    keep_start: bool = Field(
        True,
        description="keep the weights as they were where training does not help to find held-out items; without it the "
        "best of those after training are kept",
    )
    seed: int = Field(0, ge=0, description="same seed and threads, same result")
    options: RecipeOptions = Field(
        default_factory=RecipeOptions, description="options that only some recipes use"
    )

    def planned_steps(self, queries: int) -> int:
        """The steps of training with so many queries."""
        if self.passes is None:
            return self.steps
        return min(self.steps, max(1, round(self.passes * queries / self.batch)))

    def trainer_config(self, steps: int, stop_after: int | None = None) -> TrainingConfig:
        """The trainer's settings for a stage, with four validations.

        Args:
            steps: Of the stage; the learning rate falls to 0 in these.
            stop_after: Steps after which it ends all the same.
        """
        return TrainingConfig(
            steps=steps,
            stop_after=stop_after,
            learning_rate=self.learning_rate,
            warmup=0.1,
            validate_every=max(1, -(-steps // VALIDATIONS)),
            keep_start=self.keep_start,
        )
