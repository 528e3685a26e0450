"""What a generation of a catalog records about itself and the others, in the metadata of its database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from metaxc.catalog.catalog_folder import CatalogFolder
from metaxc.catalog.connections import connect, translated_errors
from metaxc.catalog.schema import DATABASE, read_metadata
from metaxc.catalog.store import Store
from metaxc.emmett import Emmett
from metaxc.emmett.model_identity import item_fingerprint

MODEL_FOLDER = "model folder"
"""The metadata that says where the model of a migrated catalog was, so that readers find it."""

FOLLOWS = "follows"
"""The metadata of a generation that is not in use: the one that it is built from, and the sequence number up to which
it has the changes of that one."""

PREVIOUS = "previous"
"""The metadata of a generation in use: the one that was in use before (`Previous`)."""

STALE = "stale vectors"
"""The metadata of a generation that is not in use: "yes" where observed items have changed after the vectors that they
inform were computed."""

ENCODER, ENCODER_KIND = "encoder", "encoder kind"
"""The metadata that name the encoder whose space the embeddings are in; catalogs of older versions have none."""

IN_STEP = "in step"
"""The metadata of a generation that is not in use: "yes" where it was in use before, so that it lacks later changes
alone."""

ITEM_SIDE = "item side"
"""The metadata that identifies what the item vectors were computed with (`metaxc.emmett.model_identity`). Catalogs of
older versions do not have it."""

EARLIER_MODELS = "earlier models"
"""The metadata that names the fingerprints of models that the catalog had before with the same item vectors."""

MOST_EARLIER = 100
"""Earlier models that are remembered. Only tables that an older version has synchronised are found by them."""


@dataclass(frozen=True)
class Previous:
    """The generation that was in use before.

    Args:
        generation: Its folder's name.
        at: Sequence number of the generation in use up to which both have the same items and clicks.
        model: The fingerprint of its model.
        folder: The folder of its model; None where that is unknown.
    """

    generation: str
    at: int
    model: str
    folder: str | None = None


def read_previous(store: Store) -> Previous | None:
    """The generation that was in use before that of an open store, if its files are there."""
    with store.read_snapshot() as connection:
        stored = read_metadata(connection).get(PREVIOUS)
    previous = Previous(**json.loads(stored)) if stored else None
    there = previous is not None and (store.folder.parent / previous.generation).is_dir()
    return previous if there else None


def read_model(folder: CatalogFolder) -> tuple[str, Path | None]:
    """The fingerprint of a catalog's model and the folder that it was in, if that is known; no row is verified."""
    with translated_errors():
        connection = connect(folder.current() / DATABASE, query_only=True)
        try:
            metadata = read_metadata(connection)
        finally:
            connection.close()
    found = metadata.get(MODEL_FOLDER)
    return metadata["model"], None if found is None else Path(found)


def has_item_vectors(metadata: Mapping[str, str], model: Emmett) -> bool:
    """Whether the item vectors of a catalog with this metadata are those of a model, whatever its queries are.

    A catalog of an older version does not record its item side: there the model must say that it keeps the items of the
    catalog's model.
    """
    recorded = metadata.get(ITEM_SIDE)
    if recorded is not None:
        return recorded == item_fingerprint(model)
    return metadata["model"] in kept_models(model)


def earlier_models(metadata: Mapping[str, str]) -> list[str]:
    """Fingerprints of models that a catalog had before with the same item vectors, the oldest first."""
    return metadata.get(EARLIER_MODELS, "").split()


def kept_models(model: Emmett) -> list[str]:
    """Fingerprints of the models whose item vectors a model keeps, by its own record (`metaxc train --keep-items`)."""
    return list(model.about.get("keeps_items", {}).get("models", ()))


def model_metadata(model: Emmett) -> dict[str, str]:
    """What a catalog records of its model."""
    return {
        "model": model.fingerprint,
        ITEM_SIDE: item_fingerprint(model),
        "dim": str(model.encoder.dim),
        ENCODER: model.encoder.fingerprint,
        ENCODER_KIND: model.encoder.kind,
        "exposure": repr(model.calibration.exposure + 0.0),  # never −0.0
    }
