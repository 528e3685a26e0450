"""What goes over the wire: requests that refuse what they do not know, answers made of the catalog's own records.

The bounds of a request come from the settings, so its models are made per service (`Requests`) and stand in its
OpenAPI. Answers are the dataclasses of `metaxc.catalog.records` and the few below, for server and client alike.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic_core import PydanticCustomError

from metaxc.catalog.item_rules import MOST_ID, MOST_TAG
from metaxc.catalog.records import CatalogHit, NewItem, State
from metaxc.serve.serve_settings import ServeSettings

MOST_NUMBER = 2**63 - 1  # what the catalog's record can hold


@dataclass(frozen=True)
class Answer:
    """One query's hits, best first."""

    query: str
    hits: tuple[CatalogHit, ...]


@dataclass(frozen=True)
class Answers:
    """What a search found; seconds by stage: queue, encode, search."""

    answers: tuple[Answer, ...]
    seconds: dict[str, float]


@dataclass(frozen=True)
class Represented:
    """(texts, dim) meta-classifiers, and the fingerprint of the model that made them."""

    vectors: list[list[float]]
    model: str


@dataclass(frozen=True)
class Deleted:
    """How many items are gone."""

    deleted: int


@dataclass(frozen=True)
class Health:
    """The process answers."""

    status: str


@dataclass(frozen=True)
class Ready:
    """The catalog answers."""

    ready: bool


CONTROL = r"\x00-\x1f\x7f-\x9f"
UNSEEN = (
    CONTROL + r"\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
)  # an encoder makes nothing of these
VISIBLE = re.compile(rf"[^{UNSEEN}\s]")
NAME_PATTERN = rf"^[^{CONTROL}]*[^{UNSEEN}\s][^{CONTROL}]*$"
TEXT_PATTERN = rf"^[^\x00]*[^{UNSEEN}\s][^\x00]*$"


def _sendable(text: str) -> str:
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise PydanticCustomError("not_text", "text without NUL characters and lone surrogates")
    return text


def _filled(text: str) -> str:
    if not VISIBLE.search(text):
        raise PydanticCustomError("blank", "text with at least one visible character")
    return _sendable(text)


def _named(name: str) -> str:
    if any(unicodedata.category(letter) == "Cc" for letter in _filled(name)):
        raise PydanticCustomError("control", "a name without control characters")
    if name in (".", ".."):
        raise PydanticCustomError("dots", "a name that can stand in a URL, not . or ..")
    return name


def _whole(number: object) -> object:
    """In JSON 10.0 is an integer too."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


NAME_SCHEMA: dict[str, Any] = {"pattern": NAME_PATTERN, "not": {"enum": [".", ".."]}}
Name = Annotated[
    str, Field(min_length=1, max_length=MOST_ID, json_schema_extra=NAME_SCHEMA), AfterValidator(_named)
]
Tag = Annotated[
    str, Field(min_length=1, max_length=MOST_TAG, json_schema_extra=NAME_SCHEMA), AfterValidator(_named)
]


Cursor = Annotated[str, Field(pattern=r"^[0-9]{1,18}$", description="`next` of an earlier answer")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ItemGiven(_Strict):
    """An item to add."""

    id: Name
    text: str
    tags: list[Tag] = []

    def record(self) -> NewItem:
        """As the catalog takes it."""
        return NewItem(self.id, self.text, tuple(self.tags))


class AddRequest(_Strict):
    """Items to add, all or none."""

    items: list[ItemGiven]


class UpdateRequest(_Strict):
    """What to change of an item; what is left out stays."""

    text: str | None = None
    tags: list[Tag] | None = None


class ClickRequest(_Strict):
    """A query that clicked an item."""

    item: Name
    query: str


class SearchRequest(_Strict):
    """Queries, and which items may answer them: those with all of the tags, in one of the states."""

    queries: list[str]
    k: int = 10
    tags: list[Tag] = []
    states: list[State] = []


class PreviewRequest(_Strict):
    """A new item, neighbours to switch off, and queries to reveal."""

    text: str
    without: list[Name] = []
    revealed: list[str] = []


class RepresentRequest(_Strict):
    """Texts of new items."""

    texts: list[str]


class Requests:
    """The request models of one service, bounded by its settings."""

    def __init__(self, settings: ServeSettings):
        text = Annotated[
            str,
            Field(min_length=1, max_length=settings.most_text, json_schema_extra={"pattern": TEXT_PATTERN}),
            AfterValidator(_filled),
        ]
        texts = Annotated[list[text], Field(min_length=1, max_length=settings.most_batch)]
        tags = Annotated[list[Tag], Field(max_length=settings.most_tags)]
        few = settings.most_revealed
        item = create_model("AddItem", __base__=ItemGiven, text=(text, ...), tags=(tags, []))
        items = Annotated[list[item], Field(min_length=1, max_length=settings.most_batch)]
        self.add: type[AddRequest] = create_model("AddItems", __base__=AddRequest, items=(items, ...))
        self.update: type[UpdateRequest] = create_model(
            "UpdateItem", __base__=UpdateRequest, text=(text | None, None), tags=(tags | None, None)
        )
        self.click: type[ClickRequest] = create_model("ClickItem", __base__=ClickRequest, query=(text, ...))
        self.search: type[SearchRequest] = create_model(
            "SearchItems",
            __base__=SearchRequest,
            queries=(texts, ...),
            k=(
                Annotated[int, Field(ge=1, le=settings.most_k), BeforeValidator(_whole)],
                min(10, settings.most_k),
            ),
            tags=(tags, []),
            states=(Annotated[list[State], Field(max_length=3)], []),
        )
        self.preview: type[PreviewRequest] = create_model(
            "PreviewItem",
            __base__=PreviewRequest,
            text=(text, ...),
            without=(Annotated[list[Name], Field(max_length=few)], []),
            revealed=(Annotated[list[text], Field(max_length=few)], []),
        )
        self.represent: type[RepresentRequest] = create_model(
            "RepresentTexts", __base__=RepresentRequest, texts=(texts, ...)
        )
