"""What a catalog takes and gives: plain records, the same in Python and over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from metaxc.emmett.explanation import Explanation, Neighbour

State = Literal["novel", "clicked", "observed"]
"""The life of an item: text only; first clicks, which vote for its neighbours; a classifier of its own."""

STATES: tuple[State, ...] = ("novel", "clicked", "observed")


@dataclass(frozen=True)
class NewItem:
    """An item to be added."""

    id: str
    text: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Item:
    """An item of the catalog.

    `clicks` counts those that the catalog has taken; `trained` says that the model's training had clicks of it.
    Times are seconds since 1970.
    """

    id: str
    text: str
    tags: tuple[str, ...]
    state: State
    clicks: int
    created: float
    updated: float
    trained: bool


@dataclass(frozen=True)
class AddResult:
    """What an add did."""

    added: int
    unchanged: int


@dataclass(frozen=True)
class CatalogHit:
    """One answer of a search."""

    id: str
    text: str
    tags: tuple[str, ...]
    state: State
    score: float


@dataclass(frozen=True)
class Click:
    """A click; `state` is the item's after it."""

    number: int
    item: str
    query: str
    at: float
    state: State


@dataclass(frozen=True)
class ItemExplanation:
    """Why an item is where it is.

    Args:
        item: The item.
        explanation: What its vector is made of, now.
        clicks: The newest first, at most 50.
        observe_after: Clicks after which an item has a classifier of its own.
        current: Whether the vector that is searched is the one that would be made now; since it was made, other items
            may have become observed.
    """

    item: Item
    explanation: Explanation
    clicks: tuple[Click, ...]
    observe_after: int
    current: bool


@dataclass(frozen=True)
class Page:
    """A part of a list; `next` is the `after` of the part that follows, None at the end."""

    items: tuple[Item, ...]
    next: str | None


@dataclass(frozen=True)
class ReachedQuery:
    """A known query that finds a new item among its ten best: by the encoder alone, by the meta-classifier, or both."""

    query: str
    encoder_rank: int | None
    meta_rank: int | None
    change: Literal["gained", "lost", "kept"]


@dataclass(frozen=True)
class Point:
    """A place on the map."""

    kind: Literal["text", "meta", "neighbour", "query"]
    label: str
    x: float
    y: float


@dataclass(frozen=True)
class Preview:
    """What would become of a new item.

    Args:
        text: Its text.
        explanation: What its meta-classifier is made of.
        off: Neighbours that were switched off.
        reached: Known queries that would find it.
        points: A map of its surroundings; from "text" to "meta" goes the arrow.
        pool: How many known queries were looked at.
        seconds: By stage: encode, select, generate, reach, map.
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
        encoder: The encoder, in words.
        dim: Of the vectors.
        index: The kind of index, with the reason for it in `index_reason`.
        items: By state.
        clicks: Taken by the catalog.
        base: Observed items that inform others.
        observe_after: Clicks after which an item has a classifier of its own.
        sequence: Changes since the beginning.
        read_only: Whether this process may write.
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
