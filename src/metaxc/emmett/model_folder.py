"""A model on disk: tensors, items, configuration and a manifest of checksums, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaxc.artifacts import (
    Arrays,
    atomic_folder,
    load_arrays,
    load_json,
    save_arrays,
    save_json,
    verify_folder,
    write_manifest,
)
from metaxc.classifiers import Classifiers
from metaxc.data import Texts
from metaxc.emmett.calibration import Calibration
from metaxc.encoders import EmbeddingCache, load_encoder
from metaxc.errors import ModelError
from metaxc.generators import load_generator, save_generator
from metaxc.memory import QueryMemory, Recall
from metaxc.selectors import NearestSelector, Selector, load_selector, save_selector, selector_kind

if TYPE_CHECKING:
    from metaxc.emmett.model import Emmett

KIND = "emmett"


def write_model(folder: Path, model: Emmett) -> None:
    """What `Emmett.save` does."""
    with atomic_folder(folder) as new:
        (new / "encoder").mkdir()
        model.encoder.save(new / "encoder")
        model.classifiers.save(new / "classifiers.safetensors")
        save_generator(new, model.generator)
        observed: Arrays = {"embeddings": model.embeddings, "rows": model.observed}
        save_arrays(new / "observed.safetensors", observed)
        save_selector(
            new / "selector.safetensors", model.selector, {} if model.bank is None else {"bank": model.bank}
        )
        if model.memory is not None:
            save_arrays(new / "memory.safetensors", model.memory.arrays())
        save_arrays(new / "index.safetensors", {"vectors": model.vectors})
        _write_items(new / "items.jsonl", model.items, model.novel)
        save_json(
            new / "config.json",
            {
                "neighbours": model.neighbours,
                "selector": selector_kind(model.selector),
                "calibration": model.calibration.model_dump(),
                "memory": None if model.memory is None else model.memory.recall.model_dump(),
                "encoder_fingerprint": model.encoder.fingerprint,
                "about": model.about,
            },
        )
        write_manifest(new, KIND)


def read_facts(place: Path) -> Any:
    """The configuration of a model folder, after every file of it has been checked."""
    verify_folder(place, KIND)
    return load_json(place / "config.json")


def read_parts(
    place: Path, base: str | Path | None, cache: EmbeddingCache | None, selector: Selector | None
) -> dict[str, Any]:
    """The arguments of `Emmett` for the model in a folder; the arguments are those of `Emmett.load`."""
    config = read_facts(place)
    observed = load_arrays(place / "observed.safetensors")
    try:
        encoder = load_encoder(place / "encoder", base=base, cache=cache)
        if encoder.fingerprint != config["encoder_fingerprint"]:
            raise ModelError(
                "The encoder is not the one the model was trained with",
                got=encoder.fingerprint[:16],
                expected=config["encoder_fingerprint"][:16],
                fix="train again",
            )
        selector, arrays = load_selector(
            place / "selector.safetensors", config.get("selector", NearestSelector.kind), selector
        )
        memory = None
        if config.get("memory"):
            remembered = load_arrays(place / "memory.safetensors")
            memory = QueryMemory.of_arrays(remembered, observed["embeddings"], Recall(**config["memory"]))
        return {
            "encoder": encoder,
            "classifiers": Classifiers.load(place / "classifiers.safetensors"),
            "embeddings": observed["embeddings"],
            "generator": load_generator(place),
            "items": _read_items(place / "items.jsonl"),
            "observed": observed["rows"],
            "neighbours": int(config["neighbours"]),
            "calibration": Calibration(**config["calibration"]),
            "vectors": load_arrays(place / "index.safetensors")["vectors"],
            "about": config["about"],
            "selector": selector,
            "bank": arrays.get("bank"),
            "memory": memory,
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError("The model folder is incomplete", got=repr(error), fix="train again") from error


def _write_items(path: Path, items: Texts, novel: Iterable[bool]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for name, text, is_novel in zip(items.ids, items.texts, novel, strict=True):
            file.write(json.dumps({"id": name, "text": text, "novel": bool(is_novel)}) + "\n")


def _read_items(path: Path) -> Texts:
    with path.open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return Texts([record["id"] for record in records], [record["text"] for record in records])
