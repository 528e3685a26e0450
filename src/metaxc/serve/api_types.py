"""The request and response models of the HTTP API.

Ids, tags and texts follow the rules of all input (`metaxc.data.input_rules`). The limits of a request come from the
settings, so the request models are built per service (`RequestModels`) and its OpenAPI description states the limits.
Responses are the catalog's own records and the dataclasses below, the same for server and client.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    create_model,
    model_validator,
)
from pydantic import Tag as UnionTag
from pydantic_core import PydanticCustomError

from metaxc.catalog.generation_checks import GenerationChecks
from metaxc.catalog.item_filters import Filter
from metaxc.catalog.item_rules import MOST_EXPOSURE
from metaxc.catalog.records import CatalogHit, Click, NewClick, NewItem, State
from metaxc.data.input_rules import (
    MOST_ID,
    MOST_TAG,
    TEXT_PATTERN,
    validate_id,
    validate_query,
    validate_tag,
    validate_text,
)
from metaxc.data.text_files import MAX_SECONDS
from metaxc.serve.rule_types import FILTER_DESCRIPTION, ID_SCHEMA, ItemFields, apply_rule
from metaxc.serve.serve_settings import RequestLimits
from metaxc.serve.vector_types import VECTOR_FIELD, TextVector, Vector, needs_one, or_vector

Model = TypeVar("Model", bound=BaseModel)
MOST_PATH = 4096  # characters of a path, as on Linux
MAX_CLICK_NUMBER = 2**63 - 1  # the largest integer in SQLite


@dataclass(frozen=True)
class QueryHits:
    """The hits of one query, best first; `query` is its text, empty for a vector without one."""

    query: str
    hits: tuple[CatalogHit, ...]


@dataclass(frozen=True)
class SearchResponse:
    """The hits of each query, and the seconds of each stage: queue, encode, search."""

    answers: tuple[QueryHits, ...]
    seconds: dict[str, float]


@dataclass(frozen=True)
class RepresentResponse:
    """Vectors whose inner products are scores.

    Args:
        vectors: (texts, dim + 1) meta-classifiers; the last number of each is its share of the exposure, 1, which is
            multiplied with the exposure of a query.
        model: The fingerprint of the model that produced them.
        queries: (queries, dim + 1) the vectors that the queries are searched with; the last number is the exposure.
    """

    vectors: list[list[float]]
    model: str
    queries: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class DeleteResponse:
    """How many items were deleted."""

    deleted: int


SwitchState = Literal["none", "loading", "building", "checking", "switching", "switched", "failed"]


@dataclass(frozen=True)
class ModelStatus:
    """The model that is served, and the switch to another one: under way, or the last one.

    Args:
        model: The fingerprint of the model that answers.
        previous: That of the generation before, to which a rollback returns; null without one.
        state: How far the switch is; "none" without one since the start of the service.
        target: The model folder that was asked for.
        done: Items that the new generation has.
        total: Items that it will have.
        checks: What was found; null before, and where nothing is checked (force, rollback).
        thresholds: With which a new model is refused.
        reason: Why it failed.
    """

    model: str
    previous: str | None
    state: SwitchState
    target: str | None = None
    done: int = 0
    total: int = 0
    checks: GenerationChecks | None = None
    thresholds: dict[str, float] = field(default_factory=dict)
    reason: str | None = None

    @property
    def under_way(self) -> bool:
        """Whether a switch has not ended yet."""
        return self.state not in ("none", "switched", "failed")


@dataclass(frozen=True)
class ClicksResponse:
    """The recorded clicks, in the order of the request."""

    clicks: tuple[Click, ...]


@dataclass(frozen=True)
class HealthResponse:
    """The process is running."""

    status: str


@dataclass(frozen=True)
class ReadyResponse:
    """Whether the catalog is open."""

    ready: bool


def _accept_whole_float(number: object) -> object:
    """JSON does not distinguish 10.0 from 10."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


ItemId = Annotated[
    str, Field(min_length=1, max_length=MOST_ID, json_schema_extra=ID_SCHEMA), apply_rule(validate_id)
]
Tag = Annotated[
    str, Field(min_length=1, max_length=MOST_TAG, json_schema_extra=ID_SCHEMA), apply_rule(validate_tag)
]
Cursor = Annotated[str, Field(pattern=r"^[0-9]{1,18}$", description="`next` of the previous page")]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NewItemRequest(_Request):
    """An item to add. One without a text needs a vector; its text is then its id."""

    model_config = ConfigDict(json_schema_extra=needs_one("text", "vector"))

    id: ItemId
    text: str = ""
    tags: list[Tag] = []
    fields: ItemFields = {}
    vector: Vector | None = VECTOR_FIELD

    @model_validator(mode="after")
    def _check_text(self) -> NewItemRequest:
        if not self.text and self.vector is None:
            raise PydanticCustomError("item_text", "either a text or a vector")
        return self

    def to_new_item(self) -> NewItem:
        """The item as the catalog's record."""
        return NewItem(self.id, self.text or self.id, tuple(self.tags), self.fields, self.vector)


class AddRequest(_Request):
    """Items to add, all or none."""

    items: list[NewItemRequest]


class UpdateRequest(_Request):
    """Changes to an item; omitted fields keep their value."""

    text: str | None = None
    tags: list[Tag] | None = None
    fields: ItemFields | None = None
    vector: Vector | None = VECTOR_FIELD


class PatchRequest(UpdateRequest):
    """Changes to parts of an item; omitted parts keep their value. Tags are replaced, then added, then removed; fields
    are replaced, then set one by one."""

    add_tags: list[Tag] = []
    remove_tags: list[Tag] = []
    set_fields: ItemFields = Field({}, description="Single fields to change; null removes one.")


class DeleteRequest(_Request):
    """Items to delete, all or none."""

    ids: list[ItemId]
    ignore_missing: bool = Field(
        False, description="Ignore ids of no item. Otherwise one is a 404, and none is deleted."
    )


class ClickRequest(_Request):
    """A query that clicked an item."""

    item: ItemId
    query: str
    at: float | None = Field(
        None,
        gt=-MAX_SECONDS,
        lt=MAX_SECONDS,
        allow_inf_nan=False,
        description="When, in seconds since 1970; now, if omitted.",
    )
    vector: Vector | None = VECTOR_FIELD

    def to_new_click(self) -> NewClick:
        """The click as the catalog's record."""
        return NewClick(self.item, self.query, self.at, self.vector)


class ClicksRequest(_Request):
    """Clicks to record, all or none."""

    clicks: list[ClickRequest]


SWITCH_SCHEMA: dict[str, Any] = {
    "oneOf": [
        {"required": ["model"], "properties": {"model": {"type": "string"}, "rollback": {"const": False}}},
        {"required": ["rollback"], "properties": {"model": {"type": "null"}, "rollback": {"const": True}}},
    ]
}


class SwitchRequest(_Request):
    """The model to switch to: a folder, or the one before."""

    model_config = ConfigDict(json_schema_extra=SWITCH_SCHEMA)

    model: str | None = Field(
        None,
        min_length=1,
        max_length=MOST_PATH,
        pattern=r"^[^\x00]+$",
        description="Its folder on the service's machine, absolute or relative to the folder of models.",
    )
    rollback: bool = Field(False, description="Switch back to the previous generation instead.")
    force: bool = Field(False, description="Switch though the checks would refuse it.")

    @model_validator(mode="after")
    def _check_target(self) -> SwitchRequest:
        if (self.model is None) != self.rollback:
            raise PydanticCustomError("switch_target", "either a model or rollback")
        return self


EXPOSURE_FIELD: Any = Field(
    None,
    ge=-MOST_EXPOSURE,
    le=MOST_EXPOSURE,
    allow_inf_nan=False,
    description="What is added to the score of an item that nobody has clicked, and less with each click. "
    "More shows new items earlier and costs accuracy on the others. By default the value chosen in training, "
    "`exposure` of /v1/about; `exposure_curve` there tells what others cost and bring.",
)


class SearchRequest(_Request):
    """Queries, filters (items that pass the filter, with all of the tags, in one of the states), and the exposure of
    new items. A query is a text or `{"vector": […]}`: an embedding, which the service expands, or a vector that
    /v1/represent has returned, which has its exposure."""

    queries: list[str | TextVector]
    k: int = 10
    offset: int = Field(
        0, description="Best items to leave out: the next page begins where the last one has ended."
    )
    filter: Filter | None = Field(None, description=FILTER_DESCRIPTION)
    tags: list[Tag] = []
    states: list[State] = []
    exposure: float | None = EXPOSURE_FIELD


class PreviewRequest(_Request):
    """A new item's text, neighbours to leave out, and queries to treat as its first clicks."""

    text: str
    without: list[ItemId] = []
    revealed: list[str] = []


class RepresentRequest(_Request):
    """New items, queries, or both. Each is a text or `{"vector": […]}`, its embedding."""

    model_config = ConfigDict(json_schema_extra=needs_one("texts", "queries"))

    texts: list[str | TextVector] = []
    queries: list[str | TextVector] = []
    exposure: float | None = EXPOSURE_FIELD

    @model_validator(mode="after")
    def _check_given(self) -> RepresentRequest:
        if not self.texts and not self.queries:
            raise PydanticCustomError("represent_given", "texts of items, or queries")
        return self

    @property
    def given(self) -> list[str | TextVector]:
        """The items, then the queries."""
        return [*self.texts, *self.queries]


ONE, SEVERAL = "(one)", "(several)"
"""Kinds of a request body; in round brackets, because they are no fields (`metaxc.serve.http_errors`)."""


class RequestModels:
    """The request models of one service, with its limits."""

    def __init__(self, limits: RequestLimits):
        length = Field(
            min_length=1, max_length=limits.max_text_length, json_schema_extra={"pattern": TEXT_PATTERN}
        )
        text = Annotated[str, length, apply_rule(validate_text)]
        query = Annotated[str, length, apply_rule(validate_query)]
        batch, edits = (
            Field(min_length=1, max_length=limits.max_batch),
            Field(max_length=limits.max_preview_edits),
        )
        tags = Annotated[list[Tag], Field(max_length=limits.max_tags)]
        k = Annotated[int, Field(ge=1, le=limits.max_k), BeforeValidator(_accept_whole_float)]
        offset = Annotated[int, Field(ge=0, le=limits.max_offset), BeforeValidator(_accept_whole_float)]
        text_or_vector, query_or_vector = or_vector(text, "ItemVector"), or_vector(query, "QueryVector")
        item = _with_fields(NewItemRequest, text=(text, ""), tags=(tags, []), vector=(Vector, VECTOR_FIELD))
        self.add = _with_fields(AddRequest, items=(Annotated[list[item], batch], ...))  # type: ignore[valid-type]
        self.update = _with_fields(UpdateRequest, text=(text | None, None), tags=(tags | None, None))
        self.patch = _with_fields(
            PatchRequest,
            text=(text | None, None),
            tags=(tags | None, None),
            add_tags=(tags, []),
            remove_tags=(tags, []),
        )
        self.delete = _with_fields(DeleteRequest, ids=(Annotated[list[ItemId], batch], ...))
        click = _with_fields(ClickRequest, query=(query, ...))
        clicks = _with_fields(ClicksRequest, clicks=(Annotated[list[click], batch], ...))  # type: ignore[valid-type]
        self.click = Annotated[
            Annotated[click, UnionTag(ONE)] | Annotated[clicks, UnionTag(SEVERAL)],
            Discriminator(lambda body: SEVERAL if isinstance(body, dict) and "clicks" in body else ONE),
        ]
        self.search = _with_fields(
            SearchRequest,
            queries=(Annotated[list[query_or_vector], batch], ...),  # type: ignore[valid-type]
            k=(k, min(SearchRequest.model_fields["k"].default, limits.max_k)),
            offset=(offset, 0),
            tags=(tags, []),
            states=(Annotated[list[State], Field(max_length=3)], []),
        )
        self.preview = _with_fields(
            PreviewRequest,
            text=(text, ...),
            without=(Annotated[list[ItemId], edits], []),
            revealed=(Annotated[list[query], edits], []),
        )
        self.represent = _with_fields(
            RepresentRequest,
            texts=(Annotated[list[text_or_vector], batch], []),  # type: ignore[valid-type]
            queries=(Annotated[list[query_or_vector], batch], []),  # type: ignore[valid-type]
        )


def _with_fields(model: type[Model], **fields: Any) -> type[Model]:
    return create_model(model.__name__, __base__=model, **fields)
