"""What to train: the choices of the algorithm, each with its reason, and the sizes they come in."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from metaxc.classifiers import OneVsAllConfig
from metaxc.encoders import AdapterConfig
from metaxc.encoders.base_names import Prompts
from metaxc.encoders.onnx import Backend
from metaxc.encoders.pretrained import DEFAULT
from metaxc.encoders.training import EncoderTraining
from metaxc.errors import ConfigError
from metaxc.generators import GeneratorTraining

BRIEFLY = EncoderTraining(steps=100, passes=1.0)
"""The fine-tuning of a transformer that every training can afford: minutes on two cores that multiply bfloat16."""

FINE_TUNED_QUERIES = (1_000, 100_000)
"""Training queries, at least and at most, with which the transformer is fine-tuned unless the user says otherwise. With
more, the adapter learns by itself what so few steps teach a transformer, and to embed all texts twice takes hours."""

PAPER_ENCODER = EncoderTraining(recipe="ngame", steps=300, passes=3.0, keep_start=False)
"""The training of the encoder under the paper's own system, which has it trained on the clicks to convergence; here it
ends early where held-out items no longer gain, and after minutes on two cores at the latest. It is trained in any case:
on a part of icd10cm held-out items were found no better than before, and the paper's system was one on bare weights."""

TRANSFORMERS = ("transformer", "post_norm")
"""The generators that are transformers."""


class MetaTrainingConfig(BaseModel):
    """What a generator sees in training. Only research changes these."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    items: Literal["out_of_fold", "observed"] = Field(
        "out_of_fold",
        description="items that a generator learns from: those that its encoder has not seen (needs two folds), or, as "
        "in the paper, the observed items",
    )
    neighbour_input: Literal["classifiers", "embeddings", "centroids", "none"] = Field(
        "classifiers",
        description="what of its neighbours an item is made of; the others are ablations. none: a transformer is "
        "trained and served without neighbours, the control that shows what they bring",
    )
    include_self: bool = Field(
        False, description="an observed item sees its own classifier in training; an ablation, it misleads"
    )


class IreneConfig(BaseModel):
    """What to train. docs/decisions.md has the reasons for these defaults and how far each was measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: Literal["adapted", "static", "pretrained"] = Field(
        "adapted",
        description="adapted: the pretrained encoder, adapted to the clicks; static: token bags, no transformer; "
        "pretrained: frozen",
    )
    base: str = Field(
        DEFAULT,
        description="pretrained weights: a sentence-transformers folder, or a name on the Hugging Face hub whose files "
        "are on this machine (hf download NAME)",
    )
    prompts: Prompts | None = Field(
        None,
        description="what stands before queries and items; if not given, what the pretrained encoder was trained with",
    )
    backend: Backend = Field(
        "auto",
        description="what computes the pretrained encoder; auto: the fastest that agrees with torch on a sample of the "
        "texts",
    )
    fine_tuning: EncoderTraining | Literal["auto", "paper"] | None = Field(
        "auto",
        description="how the pretrained encoder is fine-tuned on the clicks before all else; auto: briefly, where it "
        f"is adapted and there are {FINE_TUNED_QUERIES[0]:,} to {FINE_TUNED_QUERIES[1]:,} training queries; paper: by "
        "NGAME; both leave an encoder that has learnt from clicks as it is; None: not at all",
    )
    adapter: AdapterConfig = Field(
        default_factory=AdapterConfig, description="how the encoder is adapted to the clicks"
    )
    classifiers: Literal["ridge", "centroid", "one_vs_all"] | OneVsAllConfig = Field(
        "ridge", description="how the classifiers of observed items are fitted"
    )
    generator: Literal["auto", "combine", "gated", "transformer", "post_norm", "sum", "weighted_sum"] = Field(
        "combine",
        description="what makes meta-classifiers; auto: gated where the folds show that it helps, else combine",
    )
    training: GeneratorTraining = Field(
        default_factory=GeneratorTraining, description="how a generator that learns is trained"
    )
    meta_training: MetaTrainingConfig = Field(
        default_factory=MetaTrainingConfig, description="what a generator sees in training"
    )
    neighbours: int | None = Field(
        None,
        ge=1,
        description="K, how many neighbours inform an item; chosen on pseudo-novel items if not given",
    )
    expansion_queries: int = Field(
        300_000,
        ge=0,
        description="training queries kept for query expansion, at most; 0 for no expansion (as in the paper)",
    )
    observed_items: Literal["classifier", "generator"] = Field(
        "classifier",
        description="how items with clicks are ranked: by their own classifiers, calibrated on pseudo-novel items; or, "
        "as in the paper, by the generator, like novel items, with their own classifiers among those selected",
    )
    folds: int = Field(
        3,
        ge=0,
        description="folds of pseudo-novel items to choose the constants on; 0 takes default constants",
    )
    exposure: float | None = Field(
        None,
        allow_inf_nan=False,
        description="added to the score of an item without clicks; chosen on pseudo-novel items if not given. A search "
        "may use another value",
    )
    exposure_cost: float = Field(
        0.5,
        ge=0,
        description="points of overall accuracy (mean of P@1 and R@10) that may be given up to find novel items; on "
        "large data 60 % more for each point by which the model is better than its encoder alone, four times as many "
        "at most",
    )
    seed: int = Field(0, ge=0, description="seed of everything random")

    @model_validator(mode="after")
    def _needs_observed_items(self) -> IreneConfig:
        for name, given in (
            ("meta_training.include_self", self.meta_training.include_self),
            ("training.train_classifiers", self.training.train_classifiers),
        ):
            if given and self.meta_training.items != "observed":
                raise ValueError(
                    f"{name} concerns items that have a classifier: set meta_training.items to 'observed' too"
                )
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> IreneConfig:
        if self.observed_items == "generator" and self.folds:
            raise ValueError(
                "observed_items 'generator' leaves nothing to choose on folds of pseudo-novel items: set folds to 0"
            )
        if isinstance(self.fine_tuning, EncoderTraining) and (self.encoder == "static" or not self.folds):
            raise ValueError(
                "fine_tuning needs a transformer (encoder 'adapted' or 'pretrained') and a fold of items to hold out"
            )
        if self.meta_training.neighbour_input == "none" and self.generator not in TRANSFORMERS:
            raise ValueError(
                f"neighbour_input 'none' is a control of {' and '.join(TRANSFORMERS)}: without neighbours the "
                f"generator {self.generator!r} is the item's embedding alone"
            )
        return self

    def planned_fine_tuning(self, queries: int) -> EncoderTraining | None:
        """How the pretrained encoder is fine-tuned where there are so many training queries; None for not at all."""
        if self.fine_tuning == "paper":
            return PAPER_ENCODER
        if self.fine_tuning != "auto":
            return self.fine_tuning
        fewest, most = FINE_TUNED_QUERIES
        worth_it = self.encoder == "adapted" and self.folds > 0 and fewest <= queries <= most
        return BRIEFLY if worth_it else None


SIZES: dict[str, dict[str, Any]] = {
    "fast": {"encoder": "static", "folds": 1},
    "default": {},
    "best": {"fine_tuning": {"steps": 2_000, "passes": 3.0}},
}
"""What differs from the defaults of `IreneConfig`, by the name of a size. `fast` needs no transformer, neither to train
nor to serve; `best` fine-tunes the transformer for longer; `metaxc bench main` compares them."""


def with_options(config: IreneConfig, options: dict[str, Any]) -> IreneConfig:
    """A configuration with some fields changed; those of nested settings are given as a dict of their changes.

    Args:
        config: The configuration to start from.
        options: Values by field name. An unknown name is a `ConfigError` that suggests a known one.
    """
    if not options:
        return config
    try:
        return IreneConfig.model_validate(merge_settings(config.model_dump(), options))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"])) or "option"
        if first["type"] != "extra_forbidden":
            raise ConfigError(
                f"Invalid value for {name}", got=repr(first["input"]), expected=first["msg"]
            ) from error
        known = _field_names(IreneConfig)
        near = get_close_matches(name, known, n=1) or get_close_matches(name.split(".")[-1], known, n=1)
        raise ConfigError(
            "Unknown option",
            got=name,
            expected=", ".join(IreneConfig.model_fields),
            fix=f"did you mean {near[0]}?" if near else "see the fields of metaxc.IreneConfig",
        ) from error


def merge_settings(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with some of them changed; nested ones are merged in the same way."""
    merged = dict(settings)
    for name, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = merge_settings(merged[name], value) if nested else value
    return merged


def _field_names(model: type[BaseModel]) -> list[str]:
    """The names of all fields, those of nested settings as "settings.field"."""
    names = []
    for name, field in model.model_fields.items():
        names.append(name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            names += [f"{name}.{inner}" for inner in field.annotation.model_fields]
    return names
