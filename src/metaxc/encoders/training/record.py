"""What a trained encoder says of itself: `metaxc.json` in its folder.

It names the items and queries that were held out of training. They are what makes honest constants possible later: an
encoder knows the items whose clicks it has seen, so only those it has not seen can play novel (`known_fold`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

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


def known_fold(
    record: EncoderRecord, dataset: Dataset, observed: Any, query_rows: Any, clicks: Any
) -> Fold | None:
    """The fold of items that the encoder has not learnt from; None where too few of them are in this data set.

    Args:
        record: Of an encoder that has learnt from clicks.
        dataset: With its novel items marked.
        observed: Rows of the observed items,
        query_rows: of the training queries,
        clicks: and the clicks between them (`metaxc.data.clicks.training_clicks`).
    """
    items, queries = set(record.held_items), set(record.held_queries)
    fold = Fold(
        np.asarray([dataset.items.ids[row] in items for row in observed], dtype=bool),
        np.asarray([dataset.train.queries.ids[row] in queries for row in query_rows], dtype=bool),
    )
    return fold if fold.is_enough(clicks) else None
