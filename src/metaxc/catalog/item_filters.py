"""The filter language: which items a search may return, as JSON.

    {"field": "price", "gte": 10, "lt": 20}              several operators of one condition all hold
    {"field": "brand", "in": ["x", "y"]}                 eq, in: equal; of a list of strings, one of them is equal
    {"field": "price", "exists": true}
    {"tag": "shoes"}, {"tag": {"in": ["shoes", "boots"]}}
    {"state": "novel"}, {"state": {"in": ["novel", "clicked"]}}
    {"and": [FILTER, …]}, {"or": [FILTER, …]}, {"not": FILTER}

A condition on a field that an item does not have does not hold, except that it does not exist; its negation does.
Values are compared with values of the same type alone: true is not 1, and "1" is not 1.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from metaxc.catalog.records import STATES, State
from metaxc.data.input_rules import ID_PATTERN, MOST_TAG, RESERVED_PATTERN, validate_tag
from metaxc.data.item_fields import MAX_FIELD_NUMBER, MOST_FIELD_NAME, MOST_FIELD_TEXT, validate_field_name
from metaxc.errors import DataError

MOST_CONDITIONS = 100
"""Parts of one filter, all levels together: each costs a pass over a column."""

MOST_DEPTH = 10
MOST_PARTS = 20
"""Of one `and` or `or`."""

MOST_VALUES = 100
"""Of one `in`."""

OPERATORS = ("eq", "in", "lt", "lte", "gt", "gte", "exists")
KINDS = ("and", "or", "not", "field", "tag", "state")
EXAMPLE = '{"field": "price", "lt": 20}'


def _name_rule(rule: Any) -> AfterValidator:
    def validate(name: str) -> str:
        try:
            return str(rule(name))
        except DataError as error:
            raise PydanticCustomError("item_rule", "{reason}", {"reason": error.what}) from error

    return AfterValidator(validate)


def _optional(description: str, **options: Any) -> Any:
    """A key that may be left out, and that is not null where it is given."""

    def drop_default(schema: dict[str, Any]) -> None:
        schema.pop("default", None)

    return Field(None, description=description, json_schema_extra=drop_default, **options)


NAME_SCHEMA: dict[str, Any] = {"pattern": ID_PATTERN, "not": {"pattern": RESERVED_PATTERN}}
FieldName = Annotated[
    str,
    Field(min_length=1, max_length=MOST_FIELD_NAME, json_schema_extra=NAME_SCHEMA),
    _name_rule(validate_field_name),
]
TagName = Annotated[
    str, Field(min_length=1, max_length=MOST_TAG, json_schema_extra=NAME_SCHEMA), _name_rule(validate_tag)
]
Number = Annotated[float, Field(ge=-MAX_FIELD_NUMBER, le=MAX_FIELD_NUMBER, allow_inf_nan=False)]


def _check_value(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, str) and len(value) <= MOST_FIELD_TEXT):
        return value
    if isinstance(value, int | float) and -MAX_FIELD_NUMBER <= value <= MAX_FIELD_NUMBER:
        return value
    message = "true, false, a number of at most {number} in size, or a string of at most {length} characters"
    limits = {"number": f"{MAX_FIELD_NUMBER:.0f}", "length": MOST_FIELD_TEXT}
    raise PydanticCustomError("filter_value", message, limits)


VALUE_SCHEMA = {
    "anyOf": [
        {"type": "boolean"},
        {"type": "number", "minimum": -MAX_FIELD_NUMBER, "maximum": MAX_FIELD_NUMBER},
        {"type": "string", "maxLength": MOST_FIELD_TEXT},
    ]
}
Value = Annotated[Any, AfterValidator(_check_value), WithJsonSchema(VALUE_SCHEMA)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


class TagSet(_Part):
    """One of these tags."""

    values: list[TagName] = Field(alias="in", min_length=1, max_length=MOST_VALUES)


class StateSet(_Part):
    """One of these states."""

    values: list[State] = Field(alias="in", min_length=1, max_length=MOST_VALUES)


_ONE_OR_SEVERAL = Discriminator(lambda given: "(one)" if isinstance(given, str) else "(several)")


class TagCondition(_Part):
    """The item has this tag, or one of several."""

    tag: Annotated[TagName, Tag("(one)")] | Annotated[TagSet, Tag("(several)")] = Field(
        discriminator=_ONE_OR_SEVERAL
    )

    @property
    def wanted(self) -> list[str]:
        """The tags."""
        return self.tag.values if isinstance(self.tag, TagSet) else [self.tag]


class StateCondition(_Part):
    """The item is in this state, or in one of several."""

    state: Annotated[State, Tag("(one)")] | Annotated[StateSet, Tag("(several)")] = Field(
        discriminator=_ONE_OR_SEVERAL
    )

    @property
    def wanted(self) -> list[str]:
        """The states."""
        return list(self.state.values) if isinstance(self.state, StateSet) else [self.state]


class FieldCondition(_Part):
    """The item has this field, and its value passes all of the operators that are given."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 2})

    field: FieldName
    eq: Value = _optional("Equal to this value.")
    values: list[Value] = _optional(
        "Equal to one of these values.", alias="in", min_length=1, max_length=MOST_VALUES
    )
    lt: Number = _optional("Less than this number.")
    lte: Number = _optional("At most this number.")
    gt: Number = _optional("Greater than this number.")
    gte: Number = _optional("At least this number.")
    exists: bool = _optional("Whether the item has the field at all.")

    @model_validator(mode="before")
    @classmethod
    def _check_operators(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            unknown = [str(name) for name in given if name not in ("field", "values", *OPERATORS)]
            if unknown or len(given) < 2:
                raise PydanticCustomError(
                    "filter_operator",
                    "{problem}; a condition on a field has one or more of {operators}",
                    {
                        "problem": f"unknown operator {unknown[0][:50]!r}" if unknown else "no operator",
                        "operators": ", ".join(OPERATORS),
                    },
                )
        return given


class AndFilter(_Part):
    """All of these hold."""

    parts: list[AnyFilter] = Field(alias="and", min_length=1, max_length=MOST_PARTS)


class OrFilter(_Part):
    """At least one of these holds."""

    parts: list[AnyFilter] = Field(alias="or", min_length=1, max_length=MOST_PARTS)


class NotFilter(_Part):
    """This does not hold."""

    part: AnyFilter = Field(alias="not")


def _find_kind(given: Any) -> str | None:
    if isinstance(given, Mapping):
        return next((f"({kind})" for kind in KINDS if kind in given), None)
    return next((kind for kind, model in _MODELS.items() if isinstance(given, model)), None)


# The kinds are in round brackets because they are no part of the place of an error (`metaxc.serve.http_errors`).
AnyFilter = Annotated[
    Annotated[AndFilter, Tag("(and)")]
    | Annotated[OrFilter, Tag("(or)")]
    | Annotated[NotFilter, Tag("(not)")]
    | Annotated[FieldCondition, Tag("(field)")]
    | Annotated[TagCondition, Tag("(tag)")]
    | Annotated[StateCondition, Tag("(state)")],
    Discriminator(
        _find_kind,
        custom_error_type="filter_kind",
        custom_error_message=f"an object with one of {', '.join(KINDS)}, such as {EXAMPLE}",
    ),
]
_MODELS: dict[str, type[_Part]] = {
    "(and)": AndFilter,
    "(or)": OrFilter,
    "(not)": NotFilter,
    "(field)": FieldCondition,
    "(tag)": TagCondition,
    "(state)": StateCondition,
}


def _check_size(given: Any) -> Any:
    count, level, depth = 0, [given], 0
    while level:
        count, depth = count + len(level), depth + 1
        if count > MOST_CONDITIONS or depth > MOST_DEPTH:
            raise PydanticCustomError(
                "filter_size",
                "a filter of at most {parts} parts, {depth} levels deep",
                {"parts": MOST_CONDITIONS, "depth": MOST_DEPTH},
            )
        level = [part for one in level for part in parts_of(one)]
    return given


def parts_of(part: Any) -> list[Any]:
    """The filters that a filter joins or negates; of a valid one, or of what may become one."""
    match part:
        case AndFilter(parts=parts) | OrFilter(parts=parts) | {"and": list(parts)} | {"or": list(parts)}:
            return list(parts)
        case NotFilter(part=inner) | {"not": inner}:
            return [inner]
        case _:
            return []


Filter = Annotated[AnyFilter, BeforeValidator(_check_size)]  # before, because errors show what is given
for _model in (AndFilter, OrFilter, NotFilter):
    _model.model_rebuild()
_ADAPTER: TypeAdapter[Any] = TypeAdapter(Filter)


def parse_filter(given: object) -> Any:
    """A valid filter from its JSON text, from the mapping that JSON gives, or from one that is valid already.

    Example:
        >>> parse_filter({"field": "price", "lt": 20}).lt
        20.0
    """
    try:
        return _ADAPTER.validate_python(json.loads(given) if isinstance(given, str) else given)
    except (ValueError, RecursionError) as error:
        if not isinstance(error, ValidationError):  # of the JSON text
            raise _invalid(str(given), f"JSON ({error})") from error
        first = error.errors(include_url=False)[0]
        place = ".".join(part for part in map(str, first["loc"]) if not part.startswith("("))
        got = reprlib.repr(first.get("input"))  # of any depth
        raise _invalid(f"{place}: {got}" if place else got, first["msg"]) from error


def _invalid(got: str, expected: str) -> DataError:
    return DataError(
        "The filter is not valid",
        got=got[:200],
        expected=expected,
        fix=f"write it like {EXAMPLE}; docs/live.md has all operators",
    )


def join_filters(filter: object, tags: Sequence[str] = (), states: Sequence[State] = ()) -> Any | None:
    """One filter from a filter, tags that all items must have, and states one of which they must have; None where there
    is nothing to filter by."""
    parts: list[Any] = [] if filter is None else [parse_filter(filter)]
    parts += [parse_filter({"tag": tag}) for tag in tags]
    unknown = [state for state in states if state not in STATES]
    if unknown:
        raise DataError(
            "Unknown state", got=repr(unknown[0]), expected=", ".join(STATES), fix="use one of these"
        )
    if states:
        parts.append(parse_filter({"state": {"in": list(states)}}))
    if len(parts) < 2:
        return parts[0] if parts else None
    return AndFilter.model_construct(parts=parts)


def dump_filter(filter: Any | None) -> str:
    """A filter as JSON, the same text for the same filter; "" for none."""
    return (
        ""
        if filter is None
        else json.dumps(filter.model_dump(by_alias=True, exclude_unset=True), sort_keys=True)
    )
