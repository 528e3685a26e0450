"""What a trained encoder says of itself: `metaxc.json` in its folder.

It names the items and queries that were held out of training. They are what makes honest constants possible later: an
encoder knows the items whose clicks it has seen, so only those it has not seen can play novel (`known_folds`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.sparse import csr_array

from metaxc.arrays import Rows
from metaxc.artifacts import load_json, save_json
from metaxc.data import Dataset
from metaxc.data.folds import Fold
from metaxc.errors import ModelError

FILE = "metaxc.json"


class EncoderRecord(BaseModel):
    """How an encoder was trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: dict[str, Any] = Field(description="the settings of `metaxc.encoders.training.recipes`")
    base: str = Field(description="SHA-256 of the weights it started from")
    data: str = Field(description="fingerprint of the data set")
    learnt_from_clicks: bool = Field(description="whether it knows the items it was trained on")
    held_items: list[str] = Field(description="ids of observed items whose clicks it has not seen")
    held_queries: list[str] = Field(description="ids of training queries it has not seen")
    losses: list[float] = Field(description="mean loss over stretches of the steps")
    judged: list[tuple[int, float]] = Field(
        description="step and zero-shot R@10 on the held-out items, percent"
    )

    def write(self, folder: Path) -> None:
        """Into the encoder's folder."""
        save_json(folder / FILE, self.model_dump())

    @staticmethod
    def of(folder: Path) -> EncoderRecord | None:
        """The record in a folder; None where metaxc did not train it."""
        if not (folder / FILE).is_file():
            return None
        try:
            return EncoderRecord.model_validate(load_json(folder / FILE))
        except ValidationError as error:
            raise ModelError(
                "The record of a trained encoder cannot be read",
                got=f"{folder / FILE}: {error.errors()[0]['msg']}",
                fix="train the encoder again",
            ) from error


def known_folds(
    record: EncoderRecord, dataset: Dataset, training: tuple[Rows, Rows, csr_array], count: int, seed: int = 0
) -> list[Fold]:
    """Folds of the items that the encoder has not learnt from: `count` of them that share no item, one where there are
    too few for that, none where even one has too few of them in this data set.

    Args:
        record: Of an encoder that has learnt from clicks.
        dataset: With its novel items marked.
        training: Rows of the observed items and of the training queries, and their clicks, as
            `metaxc.data.clicks.training_clicks` gives them.
        count: How many.
        seed: Of the items' order.
    """
    observed, query_rows, clicks = training
    items, queries = set(record.held_items), set(record.held_queries)
    held = np.asarray([dataset.train.queries.ids[row] in queries for row in query_rows], dtype=bool)
    unknown = np.flatnonzero([dataset.items.ids[row] in items for row in observed])
    order = np.random.default_rng(seed).permutation(unknown)
    for parts in (count, 1):
        folds = []
        for part in np.array_split(order, parts):
            pseudo_novel = np.zeros(len(observed), dtype=bool)
            pseudo_novel[part] = True
            folds.append(Fold(pseudo_novel, held))
        if all(fold.is_enough(clicks) for fold in folds):
            return folds
    return []
