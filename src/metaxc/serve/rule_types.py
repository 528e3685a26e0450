"""The rules for ids, fields and filters as types of request models, with their schema for the OpenAPI description."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, TypeAdapter, WithJsonSchema
from pydantic_core import PydanticCustomError

from metaxc.catalog.item_filters import EXAMPLE, Filter
from metaxc.data.input_rules import ID_PATTERN, RESERVED_PATTERN
from metaxc.data.item_fields import (
    MAX_FIELD_NUMBER,
    MOST_FIELD_LIST,
    MOST_FIELD_NAME,
    MOST_FIELD_TEXT,
    MOST_FIELDS,
    validate_fields,
)
from metaxc.errors import DataError

ID_SCHEMA: dict[str, Any] = {"pattern": ID_PATTERN, "not": {"pattern": RESERVED_PATTERN}}


def apply_rule(rule: Callable[[Any], Any]) -> AfterValidator:
    """A rule of `metaxc.data.input_rules` as a validator: its error becomes a validation error of the field."""

    def validate(value: Any) -> Any:
        try:
            return rule(value)
        except DataError as error:
            reason = f"{error.what}; expected {error.expected}" if error.expected else error.what
            raise PydanticCustomError("item_rule", "{reason}", {"reason": reason}) from error

    return AfterValidator(validate)


def _check_fields(fields: dict[str, Any]) -> dict[str, Any]:
    validate_fields(fields)
    return fields  # with null, which removes a field in a patch


STRING_SCHEMA = {"type": "string", "maxLength": MOST_FIELD_TEXT, "pattern": r"^[^\x00]*$"}
FIELDS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "maxProperties": MOST_FIELDS,
    "propertyNames": {"minLength": 1, "maxLength": MOST_FIELD_NAME, **ID_SCHEMA},
    "additionalProperties": {
        "anyOf": [
            {"type": "null"},
            {"type": "boolean"},
            {"type": "number", "minimum": -MAX_FIELD_NUMBER, "maximum": MAX_FIELD_NUMBER},
            STRING_SCHEMA,
            {"type": "array", "maxItems": MOST_FIELD_LIST, "items": STRING_SCHEMA},
        ]
    },
    "description": 'Typed values by name, to filter by: {"price": 19.9, "in_stock": true, "sizes": ["s", "m"]}.',
}
ItemFields = Annotated[dict[str, Any], apply_rule(_check_fields), WithJsonSchema(FIELDS_SCHEMA)]

FILTER_DESCRIPTION = f"A condition, such as {EXAMPLE}, or and, or, not of conditions."
MOST_FILTER_LENGTH = 16_000
"""Characters of a filter in a query string. Percent-encoded, ASCII has at most three times as many, and the HTTP server
refuses a request whose first line has 64 kB by closing the connection."""

FILTER_PARAMETER: dict[str, Any] = {
    "name": "filter",
    "in": "query",
    "required": False,
    "description": f"{FILTER_DESCRIPTION} At most {MOST_FILTER_LENGTH:,} characters of JSON.",
    # A filter is an object, which a query string has as JSON. FastAPI has no parameters of this kind.
    "content": {
        "application/json": {
            "schema": TypeAdapter(Filter).json_schema(ref_template="#/components/schemas/{model}")
        }
    },
}
"""The query parameter `filter` in the OpenAPI description. The schemas that it refers to are those of a search."""
FILTER_PARAMETER["content"]["application/json"]["schema"].pop("$defs")


def check_filter_length(filter: str) -> str:
    """The JSON text of a filter, unless it is too long for a query string."""
    if len(filter) > MOST_FILTER_LENGTH:
        raise DataError(
            "The filter is too long for a list",
            got=f"{len(filter):,} characters of JSON",
            expected=f"at most {MOST_FILTER_LENGTH:,}",
            fix="shorten it, for example by a tag in place of a long list of values; a search takes longer ones",
        )
    return filter
