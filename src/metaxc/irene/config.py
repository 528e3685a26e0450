"""What to train: the few choices of a recipe, each with its reason, and the sizes they come in."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from metaxc.classifiers import OneVsAllConfig
from metaxc.encoders import AdapterConfig
from metaxc.encoders.onnx import Backend
from metaxc.encoders.pretrained import DEFAULT
from metaxc.generators import GeneratorTraining


class IreneConfig(BaseModel):
    """What to train. Why these defaults, and how far each was measured: docs/decisions.md."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: Literal["adapted", "static", "pretrained"] = Field(
        "adapted", description="adapted to the clicks; token bags alone; or frozen"
    )
    base: str = Field(DEFAULT, description="the pretrained weights: a name or a sentence-transformers folder")
    backend: Backend = Field(
        "auto",
        description="what computes the base; auto: the fastest that agrees with torch on the data's texts",
    )
    adapter: AdapterConfig = Field(default_factory=AdapterConfig, description="training of the towers")
    classifiers: Literal["ridge", "centroid", "one_vs_all"] = Field("ridge", description="of observed items")
    one_vs_all: OneVsAllConfig = Field(default_factory=OneVsAllConfig, description="when so trained")
    generator: Literal["auto", "combine", "gated", "transformer", "post_norm", "sum", "weighted_sum"] = Field(
        "combine",
        description="what makes meta-classifiers; auto: gated where the folds show that it helps, else combine",
    )
    meta_training: Literal["out_of_fold", "observed"] = Field(
        "out_of_fold",
        description="what a generator learns from: items that its encoder has not seen (of two folds or more), or, "
        "as in the paper, the observed items",
    )
    neighbours: int | None = Field(None, ge=1, description="K; chosen on pseudo-novel items when not given")
    depth: int = Field(1, ge=1, description="transformer layers (the paper's K and depth: 3 and 1)")
    informing: Literal["classifiers", "embeddings", "centroids"] = Field(
        "classifiers", description="what of its neighbours an item is made of; the others are ablations"
    )
    include_self: bool = Field(
        False, description="an observed item sees its own classifier in training; an ablation, it misleads"
    )
    memory: int = Field(
        300_000,
        ge=0,
        description="training queries that a query may borrow from, at most; 0 for none (the paper's)",
    )
    training: GeneratorTraining = Field(default_factory=GeneratorTraining, description="of the generator")
    folds: int = Field(
        3,
        ge=0,
        description="of pseudo-novel items, to choose the constants by; 0 takes the default constants",
    )
    seed: int = Field(0, ge=0, description="of everything random")

    @model_validator(mode="after")
    def _ablations_learn_from_observed_items(self) -> IreneConfig:
        for name, given in (
            ("include_self", self.include_self),
            ("training.train_classifiers", self.training.train_classifiers),
        ):
            if given and self.meta_training != "observed":
                raise ValueError(
                    f"{name} is about items that have a classifier: give meta_training='observed' too"
                )
        return self


SIZES: dict[str, dict[str, Any]] = {
    "fast": {"encoder": "static", "folds": 1},
    "default": {},
}
"""What differs from the defaults of `IreneConfig`, by the name of a size. `fast` needs no transformer, neither to train
nor to serve; docs/results.md has what each costs and brings."""
