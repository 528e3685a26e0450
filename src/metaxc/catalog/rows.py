"""Items as rows of the record, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaxc.arrays import Floats
from metaxc.catalog.lifecycle import ItemInputs, ObservedItem, Stage
from metaxc.catalog.records import Item, State
from metaxc.catalog.schema import ITEMS, Value

WHOLE = f"SELECT {', '.join(ITEMS.columns)} FROM items"
SHOWN = "SELECT key, id, text, tags, state, clicks, trained, created, updated FROM items"


@dataclass(frozen=True)
class ItemRow:
    """An item with everything that the record holds of it.

    Args:
        key: Its number, never used again.
        sequence: The commit that wrote it.
        since: The commit from which on it informs others; None where it does not.
        embedding: (dim,) of its text.
        vector: (dim,) what is searched.
        classifier: (dim,) its own, where the catalog has fitted one.
    """

    key: int
    id: str
    text: str
    tags: tuple[str, ...]
    state: State
    clicks: int
    trained: bool
    created: float
    updated: float
    sequence: int
    since: int | None
    embedding: Floats
    vector: Floats
    classifier: Floats | None

    @staticmethod
    def born(
        key: int,
        name: str,
        text: str,
        tags: tuple[str, ...],
        now: float,
        sequence: int,
        embedding: Floats,
        vector: Floats,
    ) -> ItemRow:
        """A novel item."""
        return ItemRow(
            key, name, text, tags, "novel", 0, False, now, now, sequence, None, embedding, vector, None
        )

    def values(self) -> tuple[Value, ...]:
        """In the order of the table's columns."""
        return (
            self.key,
            self.id,
            self.text,
            json.dumps(list(self.tags), ensure_ascii=False),
            self.state,
            self.clicks,
            int(self.trained),
            float(self.created),
            float(self.updated),
            self.sequence,
            self.since,
            blob(self.embedding),
            blob(self.vector),
            None if self.classifier is None else blob(self.classifier),
        )

    @staticmethod
    def of(row: Sequence[Any]) -> ItemRow:
        """From a row of `WHOLE`."""
        key, name, text, tags, state, clicks, trained, created, updated, sequence, since, *vectors = row
        embedding, vector, classifier = vectors
        return ItemRow(
            key,
            name,
            text,
            tuple(json.loads(tags)),
            state,
            clicks,
            bool(trained),
            created,
            updated,
            sequence,
            since,
            floats(embedding),
            floats(vector),
            None if classifier is None else floats(classifier),
        )

    def item(self) -> Item:
        """As it is shown."""
        return Item(
            self.id,
            self.text,
            self.tags,
            self.state,
            self.clicks,
            self.created,
            self.updated,
            self.trained,
        )

    def subject(self, queries: Floats) -> ItemInputs:
        """As its vector depends on it."""
        return ItemInputs(self.id, self.text, self.embedding, queries, self.trained)

    def informer(self) -> ObservedItem:
        """As it informs others."""
        if self.classifier is None:
            raise ValueError("an item without a classifier informs nobody")
        return ObservedItem(self.id, self.text, self.embedding, self.classifier, self.clicks)


def shown(row: Sequence[Any]) -> Item:
    """An item from a row of `SHOWN`."""
    _, name, text, tags, state, clicks, trained, created, updated = row
    return Item(name, text, tuple(json.loads(tags)), state, clicks, created, updated, bool(trained))


def informs_since(stage: Stage, before: int | None, sequence: int) -> int | None:
    """From which commit on an item informs others."""
    if stage.classifier is None:
        return None
    return sequence if before is None else before


def blob(vector: Floats) -> bytes:
    """A vector as bytes, little endian."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def floats(content: bytes) -> Floats:
    """(dim,) float32 from bytes."""
    return np.frombuffer(content, dtype="<f4").astype(np.float32, copy=False)


def stacked(contents: Iterable[bytes], dim: int) -> Floats:
    """(n, dim) float32 from the bytes of n vectors."""
    return np.frombuffer(b"".join(contents), dtype="<f4").reshape(-1, dim).astype(np.float32)
