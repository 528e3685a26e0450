"""A model on disk: tensors, items, configuration and a manifest of checksums.

The names on disk are those of the first format: `memory` is the query expansion, `bank` the neighbour vectors of a
model with a selector of its own. Models of the time before vectors had a last coordinate, the novelty, still open: in
them the first click ended an item's novelty.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

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
from metaxc.data import Texts
from metaxc.emmett.query_expansion import ExpansionConfig, QueryExpansion
from metaxc.emmett.scoring import Calibration
from metaxc.encoders import EmbeddingCache, load_encoder
from metaxc.errors import ModelError
from metaxc.generators import load_generator, save_generator
from metaxc.selectors import NearestSelector, Selector, load_selector, save_selector, selector_kind

if TYPE_CHECKING:
    from metaxc.emmett.model import Emmett

KIND = "emmett"


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
            save_arrays(new / "memory.safetensors", model.expansion.arrays())
        save_arrays(new / "index.safetensors", {"vectors": model.vectors})
        _write_items(new / "items.jsonl", model.items, model.novel)
        save_json(
            new / "config.json",
            {
                "neighbours": model.neighbours,
                "neighbour_prior": model.neighbour_prior,
                "selector": selector_kind(model.selector),
                "calibration": model.calibration.model_dump(),
                "memory": None if model.expansion is None else model.expansion.config.model_dump(),
                "encoder_fingerprint": model.encoder.fingerprint,
                "about": model.about,
            },
        )


def read_config(folder: Path) -> Any:
    """The configuration of a model folder, after every file has been verified."""
    verify_folder(folder, KIND)
    return load_json(folder / "config.json")


def read_about(folder: str | Path) -> dict[str, Any]:
    """How the model in a folder was trained, without loading it."""
    return dict(read_config(Path(folder))["about"])


def read_model(
    folder: Path, base: str | Path | None, cache: EmbeddingCache | None, selector: Selector | None
) -> dict[str, Any]:
    """The arguments of `Emmett` for the model in a folder; see `Emmett.load`."""
    config = read_config(folder)
    observed = load_arrays(folder / "observed.safetensors")
    try:
        encoder = load_encoder(folder / "encoder", base=base, cache=cache)
        if encoder.fingerprint != config["encoder_fingerprint"]:
            raise ModelError(
                "The encoder is not the one that the model was trained with",
                got=encoder.fingerprint[:16],
                expected=config["encoder_fingerprint"][:16],
                fix="train again",
            )
        selector, arrays = load_selector(
            folder / "selector.safetensors", config.get("selector", NearestSelector.kind), selector
        )
        expansion = None
        if config.get("memory"):
            expansion = QueryExpansion.from_arrays(
                load_arrays(folder / "memory.safetensors"),
                observed["embeddings"],
                ExpansionConfig(**config["memory"]),
            )
        calibration = {"novelty_prior": 0.0, **config["calibration"]}
        # The first format had the neighbours' prior in it.
        neighbour_prior = calibration.pop("neighbour_prior", config.get("neighbour_prior"))
        return {
            "encoder": encoder,
            "classifiers": Classifiers.load(folder / "classifiers.safetensors"),
            "embeddings": observed["embeddings"],
            "generator": load_generator(folder),
            "items": _read_items(folder / "items.jsonl"),
            "observed": observed["rows"],
            "neighbours": int(config["neighbours"]),
            "neighbour_prior": float(neighbour_prior),
            "calibration": Calibration(**calibration),
            "vectors": _with_novelty(load_arrays(folder / "index.safetensors")["vectors"], observed),
            "about": config["about"],
            "selector": selector,
            "neighbour_vectors": arrays.get("bank"),
            "expansion": expansion,
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError("The model folder is incomplete", got=repr(error), fix="train again") from error


def _with_novelty(vectors: Floats, observed: Arrays) -> Floats:
    """Vectors with their last coordinate, which those of an older model folder do not have."""
    if vectors.shape[1] > observed["embeddings"].shape[1]:
        return vectors
    novelty = np.ones((len(vectors), 1), np.float32)
    novelty[observed["rows"]] = 0.0
    return np.concatenate([vectors, novelty], axis=1)


def _write_items(path: Path, items: Texts, novel: Iterable[bool]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for name, text, is_novel in zip(items.ids, items.texts, novel, strict=True):
            file.write(json.dumps({"id": name, "text": text, "novel": bool(is_novel)}) + "\n")


def _read_items(path: Path) -> Texts:
    with path.open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return Texts([record["id"] for record in records], [record["text"] for record in records])
