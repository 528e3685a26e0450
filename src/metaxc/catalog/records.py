"""The data types of a catalog: what it takes and returns, the same in Python and over HTTP, and the row it stores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from metaxc.arrays import Floats
from metaxc.catalog.schema import ITEMS, Value, decode_item_vectors, decode_vector, encode_vector
from metaxc.data.item_fields import Fields, dump_fields, load_fields
from metaxc.emmett import Explanation, Neighbour
from metaxc.errors import DataError

State = Literal["novel", "clicked", "observed"]
"""A label for people: nobody has clicked the item; it has its first clicks; it has enough of them, or the model was
trained on clicks of it, so that it informs other items. The item's vector follows the same formula in all states."""

STATES: tuple[State, ...] = ("novel", "clicked", "observed")


class CatalogSettings(BaseModel):
    """Settings that are fixed when a catalog is created."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # A classifier of three clicks ranks an item about as well as its neighbours do (`benchmarks/life.py`), so from then
    # on it has something to tell others. An item's own vector does not depend on this number.
    observe_after: int = Field(
        3,
        ge=1,
        description="Number of clicks after which an item counts as observed and informs other items.",
    )


@dataclass(frozen=True)
class NewItem:
    """An item to add.

    Args:
        id: Its id.
        text: Its text.
        tags: Its tags.
        fields: Its fields, values by name.
        vector: (dim,) its embedding in the space of the model's encoder; None to encode the text.
    """

    id: str
    text: str
    tags: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    vector: Sequence[float] | Floats | None = field(default=None, compare=False)

    @staticmethod
    def of(given: NewItem | Mapping[str, Any]) -> NewItem:
        """An item from a mapping with "id", "text" and, if wanted, "tags", "fields" and "vector"; an item stays what it
        is. The text of an item that is given by its vector alone is its id."""
        if isinstance(given, NewItem):
            return given
        expected = (
            '{"id": …, "text": …}, with "tags": […], "fields": {…} and "vector": […] if wanted, or a NewItem'
        )
        if not isinstance(given, Mapping):
            raise DataError("Not an item", got=repr(given)[:100], expected=expected)
        known = [field.name for field in fields(NewItem)]
        unknown = [str(name) for name in given if name not in known]
        vector = given.get("vector")
        missing = [name for name in known[: 2 if vector is None else 1] if name not in given]
        if unknown or missing:
            near = get_close_matches(unknown[0], known, n=1) if unknown else []
            raise DataError(
                f"An item has an unknown field {unknown[0]!r}"
                if unknown
                else f"An item has no {missing[0]!r}",
                got=repr(dict(given))[:100],
                expected=expected,
                fix=f"did you mean {near[0]!r}?" if near else None,
            )
        tags, own_fields = given.get("tags") or (), given.get("fields")
        return NewItem(
            given["id"],
            given["text"] if vector is None else given.get("text") or given["id"],
            (tags,) if isinstance(tags, str) else tuple(tags),
            {} if own_fields is None else own_fields,
            vector,
        )


@dataclass(frozen=True)
class NewClick:
    """A click to record.

    Args:
        item: The item's id.
        query: The query's text; where the caller gives its vector, any name for it.
        at: When, in seconds since 1970; None for now.
        vector: (dim,) the query's embedding in the space of the model's encoder; None to encode the query.
    """

    item: str
    query: str
    at: float | None = None
    vector: Sequence[float] | Floats | None = field(default=None, compare=False)

    @staticmethod
    def of(given: NewClick | tuple[str, str] | Mapping[str, Any]) -> NewClick:
        """A click from an (item, query) pair or a mapping with "item", "query" and, if wanted, "at" and "vector"."""
        if isinstance(given, NewClick):
            return given
        names = {field.name for field in fields(NewClick)}
        if isinstance(given, Mapping) and {"item", "query"} <= set(given) <= names:
            return NewClick(given["item"], given["query"], given.get("at"), given.get("vector"))
        if isinstance(given, tuple) and len(given) == 2:
            return NewClick(*given)
        raise DataError(
            "Not a click",
            got=repr(given)[:100],
            expected='an (item, query) pair, {"item": …, "query": …}, with "at" and "vector" if wanted, or a '
            "NewClick",
        )


@dataclass(frozen=True)
class Item:
    """An item of the catalog.

    `clicks` counts the clicks that the catalog has recorded. `trained` says whether the model was trained on clicks of
    this item. `created` and `updated` are seconds since 1970.
    """

    id: str
    text: str
    tags: tuple[str, ...]
    state: State
    clicks: int
    created: float
    updated: float
    trained: bool
    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True)
class AddResult:
    """How many items were added, and how many existed with the same content."""

    added: int
    unchanged: int


@dataclass(frozen=True)
class CatalogHit:
    """One item that a search found, with its score."""

    id: str
    text: str
    tags: tuple[str, ...]
    state: State
    score: float
    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True)
class Click:
    """A recorded click; `at` is in seconds since 1970, `state` is the item's state after the click."""

    number: int
    item: str
    query: str
    at: float
    state: State


@dataclass(frozen=True)
class ItemExplanation:
    """Why an item is ranked where it is.

    Args:
        item: The item.
        explanation: What its vector would be computed from now.
        clicks: Its clicks, the newest first, at most 50.
        observe_after: Number of clicks after which an item counts as observed and informs others.
        current: Whether the stored vector equals the one that would be computed now. It does not where other items
            have become observed since.
    """

    item: Item
    explanation: Explanation
    clicks: tuple[Click, ...]
    observe_after: int
    current: bool


@dataclass(frozen=True)
class Page:
    """One page of a list; pass `next` as `after` to get the following page, None on the last page."""

    items: tuple[Item, ...]
    next: str | None


@dataclass(frozen=True)
class ReachedQuery:
    """A known query that ranks a new item among its ten best, by the encoder alone or by the meta-classifier.

    A rank is None where the item is not among the ten best. `change` compares the two: the meta-classifier has gained,
    lost or kept this query.
    """

    query: str
    encoder_rank: int | None
    meta_rank: int | None
    change: Literal["gained", "lost", "kept"]


@dataclass(frozen=True)
class Point:
    """A labelled point on the map of a preview."""

    kind: Literal["text", "meta", "neighbour", "query"]
    label: str
    x: float
    y: float


@dataclass(frozen=True)
class Preview:
    """What the catalog would do with a new item.

    Args:
        text: The item's text.
        explanation: What its meta-classifier is computed from.
        off: Neighbours that the caller switched off.
        reached: Known queries that would find the item.
        points: A two-dimensional map of the item, its neighbours and queries; the first two points are the item's text
            and its meta-classifier.
        pool: Number of known queries that were scored.
        seconds: Seconds by stage: encode, select, generate, reach, map.
    """

    text: str
    explanation: Explanation
    off: tuple[Neighbour, ...]
    reached: tuple[ReachedQuery, ...]
    points: tuple[Point, ...]
    pool: int
    seconds: dict[str, float]


@dataclass(frozen=True)
class CatalogSummary:
    """A catalog in figures.

    Args:
        model: The model's fingerprint.
        encoder: A description of the encoder.
        dim: Dimension of the embeddings; the vectors that are searched have one more coordinate, the novelty of an
            item and the exposure of a query.
        index: The kind of index.
        index_reason: Why this kind was chosen.
        items: Number of items by state.
        clicks: Number of clicks that the catalog has recorded.
        base: Number of observed items whose classifiers inform other items.
        observe_after: Number of clicks after which an item counts as observed and informs others.
        sequence: Sequence number of the last transaction.
        read_only: Whether this process may only read.
        exposure: What a search adds to the score of an item without clicks unless it names another value; chosen in
            training.
        exposure_curve: What other values would cost and bring, in percent, measured in training on items whose clicks
            were hidden: each point has `exposure`, `P@1`, `R@10`, `novel R@10`, `observed R@10`, `H`, `novel share`,
            and `chosen` where it is the model's own value. Empty for models that have not measured it.
        novel_items: Why items of the model had no classifier when it was trained: `held_out` for the test, or
            `without_clicks` in the training data. Empty for models that do not say so.
    """

    model: str
    encoder: str
    dim: int
    index: str
    index_reason: str
    items: dict[State, int]
    clicks: int
    base: int
    observe_after: int
    sequence: int
    read_only: bool
    exposure: float = 0.0
    exposure_curve: tuple[dict[str, float | bool], ...] = ()
    novel_items: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ItemRow:
    """A row of the table `items`; the fields are the table's columns.

    Args:
        key: Primary key, never reused.
        tags: The item's tags, sorted.
        trained: Whether the model was trained on clicks of the item.
        created: Seconds since 1970, as `updated`.
        sequence: Sequence number of the transaction that wrote the row.
        since: Sequence number from which on the item informs others; None where it does not.
        embedding: (dim,) float32 embedding of the text.
        vector: (dim + 1,) float32 vector that is searched; the last entry is the novelty.
        classifier: (dim,) float32 classifier that the catalog has fitted; None where it has not.
        fields: The item's fields, valid.
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
    fields: Fields = field(default_factory=dict)

    @staticmethod
    def novel(item: NewItem, embedding: Floats, now: float) -> ItemRow:
        """A novel item, valid, that has no key, sequence number and vector yet."""
        return ItemRow(
            key=0,
            id=item.id,
            text=item.text,
            tags=item.tags,
            state="novel",
            clicks=0,
            trained=False,
            created=now,
            updated=now,
            sequence=0,
            since=None,
            embedding=embedding,
            vector=np.empty(0, np.float32),
            classifier=None,
            fields=dict(item.fields),
        )

    def values(self) -> tuple[Value, ...]:
        """The row as SQLite stores it, in the order of the columns."""
        stored = {
            **vars(self),
            "tags": json.dumps(list(self.tags), ensure_ascii=False),
            "trained": int(self.trained),
            "created": float(self.created),
            "updated": float(self.updated),
            "embedding": encode_vector(self.embedding),
            "vector": encode_vector(self.vector),
            "classifier": None if self.classifier is None else encode_vector(self.classifier),
            "fields": dump_fields(self.fields),
        }
        return tuple(stored[column] for column in ITEMS.columns)

    @staticmethod
    def from_values(values: Sequence[Any]) -> ItemRow:
        """The row from the columns that `select_items` reads."""
        *plain, embedding, vector, classifier, own_fields = values
        stored = dict(zip(ITEMS.columns[: len(plain)], plain, strict=True))
        embedding = decode_vector(embedding)
        vector_columns = (vector, stored["clicks"], stored["trained"])
        return ItemRow(
            **{**stored, "tags": tuple(json.loads(stored["tags"])), "trained": bool(stored["trained"])},
            embedding=embedding,
            vector=decode_item_vectors([vector_columns], len(embedding))[0],
            classifier=None if classifier is None else decode_vector(classifier),
            fields=load_fields(own_fields),
        )

    def item(self) -> Item:
        """The item as users see it."""
        return Item(**{field.name: getattr(self, field.name) for field in fields(Item)})
