"""A model on disk: tensors, items, configuration and a manifest of checksums.

The names on disk are those of the first format: `memory` is the query expansion, `bank` the neighbour vectors of a
model with a selector of its own. Models of the time before vectors had a last coordinate, the novelty, still open: in
them the first click ended an item's novelty. Those without `trained_on.safetensors` open too: then an evaluation cannot
notice that a test query was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from metaxc.array_checks import AGAIN, check_rows, take_array
from metaxc.arrays import Floats
from metaxc.artifacts import (
    Arrays,
    atomic_folder,
    load_arrays,
    load_json,
    save_arrays,
    save_json,
    verify_folder,
)
from metaxc.classifiers import Classifiers
from metaxc.data import Problem, Texts
from metaxc.data.data_problems import file_error
from metaxc.data.input_rules import validate_tags
from metaxc.data.item_fields import any_fields, validate_fields
from metaxc.data.text_lines import read_json_lines
from metaxc.emmett.query_expansion import ExpansionConfig, QueryExpansion
from metaxc.emmett.scoring import MOST, MOST_NEIGHBOURS, Calibration
from metaxc.emmett.training_record import TrainingRecord
from metaxc.encoders import EmbeddingCache, load_encoder
from metaxc.errors import DataError, ModelError
from metaxc.generators import load_generator, save_generator
from metaxc.selectors import (
    ClusterSelector,
    NearestSelector,
    Selector,
    load_selector,
    save_selector,
    selector_kind,
)

if TYPE_CHECKING:
    from metaxc.emmett.model import Emmett

KIND = "emmett"

UNREADABLE = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
"""What Python and the libraries raise when files do not contain what they should."""


def write_model(folder: Path, model: Emmett, overwrite: bool = False) -> None:
    """Write a model folder; see `Emmett.save`."""
    with atomic_folder(folder, KIND, overwrite=overwrite) as new:
        (new / "encoder").mkdir()
        model.encoder.save(new / "encoder")
        model.classifiers.save(new / "classifiers.safetensors")
        save_generator(new, model.generator)
        observed: Arrays = {"embeddings": model.embeddings, "rows": model.observed}
        save_arrays(new / "observed.safetensors", observed)
        custom = model.custom_neighbour_vectors
        save_selector(
            new / "selector.safetensors", model.selector, {} if custom is None else {"bank": custom}
        )
        if model.expansion is not None:
            memory = {**model.expansion.arrays(), **model.expansion.index_arrays()}
            save_arrays(new / "memory.safetensors", memory)
        vectors = {"vectors": model.vectors, **model._vector_search.arrays()}
        save_arrays(new / "index.safetensors", vectors)
        if model.trained_on is not None:
            model.trained_on.save(new / "trained_on.safetensors")
        _write_items(new / "items.jsonl", model.items, model.novel)
        save_json(
            new / "config.json",
            {
                "neighbours": model.neighbours,
                "neighbour_prior": model.neighbour_prior,
                "selector": selector_kind(model.selector),
                "calibration": model.calibration.model_dump(),
                "memory": None if model.expansion is None else model.expansion.config.model_dump(),
                "selects_itself": model.selects_itself,
                "encoder_fingerprint": model.encoder.fingerprint,
                "about": model.about,
            },
        )


class ModelConfig(BaseModel):
    """The file config.json of a model folder. Fields that older models do not have have defaults."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    neighbours: int = Field(ge=1, le=MOST_NEIGHBOURS)
    neighbour_prior: float | None = Field(None, ge=0, le=MOST)
    selector: str = NearestSelector.kind
    calibration: dict[str, Any]
    memory: dict[str, float] | None = None
    selects_itself: bool = False
    encoder_fingerprint: str
    about: dict[str, Any]

    @property
    def constants(self) -> tuple[Calibration, float]:
        """The calibration and the neighbours' prior, which the first format had in the calibration."""
        calibration = {"novelty_prior": 0.0, **self.calibration}
        prior = calibration.pop("neighbour_prior", self.neighbour_prior)
        if prior is None:
            raise ValueError("no neighbour_prior")
        return Calibration.model_validate(calibration), float(prior)


def read_config(folder: Path) -> ModelConfig:
    """The configuration of a model folder, after every file has been verified."""
    verify_folder(folder, KIND)
    try:
        return ModelConfig.model_validate(load_json(folder / "config.json"))
    except ValidationError as error:
        first = error.errors()[0]
        raise ModelError(
            "The configuration of the model cannot be used",
            got=f"{folder / 'config.json'}: {'.'.join(map(str, first['loc']))} = {str(first['input'])[:80]}",
            expected=first["msg"],
            fix=AGAIN,
        ) from error


def read_about(folder: str | Path) -> dict[str, Any]:
    """How the model in a folder was trained, without loading it."""
    return dict(read_config(Path(folder)).about)


def read_model(
    folder: Path, base: str | Path | None, cache: EmbeddingCache | None, selector: Selector | None
) -> dict[str, Any]:
    """The arguments of `Emmett` for the model in a folder; see `Emmett.load`.

    The files are whole, but may have been written by somebody else: whatever does not fit together is a `ModelError`.
    """
    config = read_config(folder)
    try:
        model = _read_parts(folder, config, base, cache, selector)
        _check_sizes(folder, model)
    except UNREADABLE as error:
        raise ModelError(
            "The model folder is incomplete or damaged", got=f"{folder}: {error!r}", fix=AGAIN
        ) from error
    return model


def _read_parts(
    folder: Path,
    config: ModelConfig,
    base: str | Path | None,
    cache: EmbeddingCache | None,
    selector: Selector | None,
) -> dict[str, Any]:
    encoder = load_encoder(folder / "encoder", base=base, cache=cache)
    if encoder.fingerprint != config.encoder_fingerprint:
        raise ModelError(
            "The encoder is not the one that the model was trained with",
            got=encoder.fingerprint[:16],
            expected=config.encoder_fingerprint[:16],
            fix="train again",
        )
    file = folder / "observed.safetensors"
    arrays = load_arrays(file)
    observed: Arrays = {
        "embeddings": take_array(arrays, "embeddings", file, (None, encoder.dim)),
        "rows": take_array(arrays, "rows", file, (None,), ("int64",)),
    }
    selector, selected = load_selector(
        folder / "selector.safetensors", config.selector, selector, observed["embeddings"]
    )
    expansion = None
    if config.memory:
        file = folder / "memory.safetensors"
        expansion = QueryExpansion.from_arrays(
            load_arrays(file), observed["embeddings"], ExpansionConfig.model_validate(config.memory), file
        )
    calibration, neighbour_prior = config.constants
    file = folder / "index.safetensors"
    arrays = load_arrays(file)
    return {
        "encoder": encoder,
        "classifiers": Classifiers.load(folder / "classifiers.safetensors"),
        "embeddings": observed["embeddings"],
        "generator": load_generator(folder),
        "items": _read_items(folder / "items.jsonl"),
        "observed": observed["rows"],
        "neighbours": config.neighbours,
        "neighbour_prior": neighbour_prior,
        "calibration": calibration,
        "vectors": _with_novelty(take_array(arrays, "vectors", file, (None, None)), observed),
        "index": arrays,
        "about": config.about,
        "selector": selector,
        "neighbour_vectors": selected.get("bank"),
        "expansion": expansion,
        "trained_on": TrainingRecord.load(folder / "trained_on.safetensors"),
        "selects_itself": config.selects_itself,
    }


def _check_sizes(folder: Path, model: dict[str, Any]) -> None:
    """Raise where the parts of a model, each of them readable, do not fit together."""
    items, (observed, dim) = len(model["items"]), model["embeddings"].shape
    take_array({"weights": model["classifiers"].weights}, "weights", folder / "classifiers", (observed, dim))
    take_array({"rows": model["observed"]}, "rows", folder / "observed", (observed,), ("int64",))
    take_array({"vectors": model["vectors"]}, "vectors", folder / "index", (items, dim + 1))
    check_rows(model["observed"], items, "observed items")
    if len(np.unique(model["observed"])) != observed:
        raise ValueError("an item is observed twice")
    if model["neighbour_vectors"] is not None:
        take_array({"bank": model["neighbour_vectors"]}, "bank", folder / "selector", (None, dim))
    if isinstance(model["selector"], ClusterSelector):
        take_array({"centroids": model["selector"].centroids}, "centroids", folder / "selector", (None, dim))
    if model["generator"].settings().get("dim", dim) != dim:
        raise ValueError(f"the generator has {model['generator'].settings()['dim']} dimensions, not {dim}")


def _with_novelty(vectors: Floats, observed: Arrays) -> Floats:
    """Vectors with their last coordinate, which those of an older model folder do not have."""
    if vectors.shape[1] > observed["embeddings"].shape[1]:
        return vectors
    novelty = np.ones((len(vectors), 1), np.float32)
    novelty[observed["rows"]] = 0.0
    return np.concatenate([vectors, novelty], axis=1)


def _write_items(path: Path, items: Texts, novel: Iterable[bool]) -> None:
    tags, fields = items.tags or [()] * len(items), items.fields or [{}] * len(items)
    with path.open("w", encoding="utf-8") as file:
        for name, text, is_novel, own, its in zip(items.ids, items.texts, novel, tags, fields, strict=True):
            record: dict[str, Any] = {"id": name, "text": text, "novel": bool(is_novel)}
            record |= ({"tags": list(own)} if own else {}) | ({"fields": its} if its else {})
            file.write(json.dumps(record) + "\n")


def _read_items(path: Path) -> Texts:
    def refuse(problem: Problem) -> NoReturn:
        raise ModelError("The items of the model cannot be read", got=str(problem), fix=AGAIN)

    ids, texts, tags, fields = [], [], [], []
    for number, record in read_json_lines(path, refuse, may_be_empty=False):
        id, text = record.get("id"), record.get("text")
        if not isinstance(id, str) or not isinstance(text, str):
            refuse(file_error(path, number, "no item", "The line is not an item", str(record)))
        try:
            tags.append(validate_tags(record.get("tags", ())))
            fields.append(validate_fields(record.get("fields", {})))
        except (DataError, TypeError):
            refuse(file_error(path, number, "no item", "The tags or fields are not valid", str(record)))
        ids.append(id)
        texts.append(text)
    return Texts(ids, texts, tags=tags if any(tags) else None, fields=any_fields(fields))
