"""Which model and which item: a model in words, its fingerprint, and one of its items by id."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from metaxc.arrays import Rows
from metaxc.artifacts import Arrays, json_digest
from metaxc.emmett.scoring import Calibration
from metaxc.encoders.adapted import Adapted
from metaxc.errors import DataError

if TYPE_CHECKING:
    from metaxc.emmett.model import Emmett


def find_item(model: Emmett, id: str) -> tuple[str, Rows | None]:
    """The text of one of a model's items, and its (1,) place among the observed ones; None for a novel item."""
    row = model.items.row_of.get(id)
    if row is None:
        near = get_close_matches(id, model.items.ids, n=3)
        raise DataError(
            "The model has no item with this id",
            got=repr(id),
            expected=f"one of its {len(model.items):,} items"
            + (f", such as {', '.join(near)}" if near else ""),
            fix="check the id, or give the text of a new item in its place",
        )
    place = np.flatnonzero(model.observed == row)
    return model.items.texts[row], place if len(place) else None


def describe_model(model: Emmett) -> dict[str, str]:
    """What a model is, by name, for people."""
    data = model.about.get("data") or {}
    novel = len(model.items) - len(model.observed)
    return {
        "items": f"{len(model.items):,} items, {novel:,} of them novel",
        "encoder": f"{model.encoder.kind} encoder, {model.encoder.dim} dimensions",
        "generator": model.generator.kind,
        "K": str(model.neighbours),
        "exposure": f"{model.calibration.exposure:.3g}",
        **({"trained on": str(data["name"])} if "name" in data else {}),
    }


def describe_novel(novel_items: Mapping[str, int]) -> str:
    """How many items have no classifier, and why, from a model's `about["novel_items"]`."""
    held_out, without = novel_items.get("held_out", 0), novel_items.get("without_clicks", 0)
    if not without:
        return f"{held_out:,}"
    return f"{held_out + without:,}, {held_out:,} of them held out for the test, {without:,} without training clicks"


def compute_fingerprint(model: Emmett) -> str:
    """See `Emmett.fingerprint`."""
    calibration = model.calibration.model_dump()
    # Models of the time before these existed keep their fingerprints, and catalogs open with them.
    for name in ("novelty_prior", "exposure", "response_unit"):
        if not calibration[name]:
            del calibration[name]
    if not any(calibration["exposure_bonus"]):
        del calibration["exposure_bonus"]
    if calibration["freshness_days"] is None:
        del calibration["freshness_days"]
    if model.selects_itself:
        calibration["selects_itself"] = True
    expansion = model.expansion
    return json_digest(
        [
            model.encoder.fingerprint,
            model.neighbours,
            {**calibration, "neighbour_prior": model.neighbour_prior},
            model.generator.kind,
            model.generator.settings(),
            repr(model.selector),
            None if expansion is None else expansion.config.model_dump(),
            _digests({**_item_arrays(model), **({} if expansion is None else expansion.arrays())}),
        ]
    )


def item_fingerprint(model: Emmett) -> str:
    """Identifies the item side of a model: the encoder of items, classifiers, neighbours, generator and calibration.

    The query side is the rest: the encoder of queries, the query layer, the query expansion and the exposure. Models
    with the same item side give items the same vectors, and each can search those of the other.
    """
    encoder = model.encoder
    return json_digest(
        [
            "item side",
            encoder.item_fingerprint if isinstance(encoder, Adapted) else encoder.fingerprint,
            model.neighbours,
            model.neighbour_prior,
            model.calibration.model_dump(exclude=_not_of_items(model.calibration)),
            model.generator.kind,
            model.generator.settings(),
            repr(model.selector),
            *(["selects itself"] if model.selects_itself else []),
            [model.items.ids[row] for row in model.observed.tolist()],
            _digests(_item_arrays(model)),
        ]
    )


def _not_of_items(calibration: Calibration) -> set[str]:
    """Fields that do not change an item's vector; models of the time before freshness keep their fingerprints."""
    return {"exposure", "response_unit"} | (
        {"freshness_days"} if calibration.freshness_days is None else set()
    )


def _item_arrays(model: Emmett) -> Arrays:
    """The arrays that item vectors are computed from."""
    return {
        **model.generator.arrays(),
        "weights": model.classifiers.weights,
        "clicks": model.classifiers.clicks,
        **({} if model.classifiers.ages is None else {"ages": model.classifiers.ages}),
        "embeddings": model.embeddings,
        "selector": model.selector.embeddings,
        **({} if model.custom_neighbour_vectors is None else {"bank": model.custom_neighbour_vectors}),
    }


def _digests(arrays: Arrays) -> dict[str, str]:
    return {name: sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}
