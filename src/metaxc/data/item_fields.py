"""The fields of an item: typed values by name, such as a price, by which a catalog filters.

`validate_fields` is the one rule for them, from the data set folder to HTTP; `dump_fields` is the one form in which
they are stored and compared. A data set folder, a model, a catalog and a response have them as JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from metaxc.data.input_rules import INVALID, validate_name
from metaxc.errors import DataError

FieldValue = bool | int | float | str | list[str]
Fields = dict[str, FieldValue]

MOST_FIELDS = 50
"""Of one item."""

MOST_FIELD_NAME = 64
MOST_FIELD_TEXT = 500
"""Characters of a string; longer ones belong into the item's text, which is searched."""

MOST_FIELD_LIST = 50
MAX_FIELD_NUMBER = 2.0**53
"""Up to here a double holds every whole number, so that equal numbers are equal in JSON, in numpy and in SQL."""

MOST_FIELD_BYTES = 16_000
"""Of all fields of an item as JSON: they are read for every hit, and some vector stores hold no more than 64 kB."""

NO_FIELDS = "{}"
VALUES = "a string, a number, true, false, or a list of strings"


def validate_field_name(name: str) -> str:
    """The name of a field: the rules of a tag, at most `MOST_FIELD_NAME` characters."""
    return validate_name(name, "field name", MOST_FIELD_NAME)


def validate_fields(fields: Mapping[str, Any]) -> Fields:
    """An item's fields, sorted by name, at most `MOST_FIELDS`.

    None and an empty list are no value: the item does not have the field. A whole number is an int, whichever way it is
    written; a list has each string once.
    """
    if not isinstance(fields, Mapping):
        raise DataError(
            "Fields must be an object",
            got=repr(fields)[:100],
            expected='values by name: {"price": 19.9, "in_stock": true}',
        )
    valid = {
        validate_field_name(name): _validate_value(name, value)
        for name, value in fields.items()
        if value is not None and value != [] and value != ()
    }
    if len(valid) > MOST_FIELDS:
        raise DataError(
            "Too many fields", got=len(valid), expected=f"at most {MOST_FIELDS}", fix="remove some fields"
        )
    if (size := len(dump_fields(valid).encode())) > MOST_FIELD_BYTES:
        raise DataError(
            "The fields are too large",
            got=f"{size:,} bytes as JSON",
            expected=f"at most {MOST_FIELD_BYTES:,}",
            fix="put long texts into the item's text",
        )
    return dict(sorted(valid.items()))


def _validate_value(name: str, value: object) -> FieldValue:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _validate_number(name, value)
    if isinstance(value, str):
        return _validate_string(name, value)
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        if len(value) > MOST_FIELD_LIST:
            got = f"{len(value)} strings in {name!r}"
            raise DataError("A field has too many strings", got=got, expected=f"at most {MOST_FIELD_LIST}")
        return list(dict.fromkeys(_validate_string(name, one) for one in value))
    raise DataError("A field has a value of no known type", got=f"{name!r}: {value!r}"[:100], expected=VALUES)


def _validate_number(name: str, value: int | float) -> int | float:
    if not (math.isfinite(value) if isinstance(value, float) else True) or abs(value) > MAX_FIELD_NUMBER:
        raise DataError(
            "A number in a field is out of range",
            got=f"{name!r}: {str(value)[:50]}",
            expected=f"a finite number of at most {MAX_FIELD_NUMBER:.0f} in size",
            fix="give long ids as strings",
        )
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _validate_string(name: str, value: str) -> str:
    if len(value) > MOST_FIELD_TEXT:
        raise DataError(
            "A string in a field is too long",
            got=f"{len(value):,} characters in {name!r}",
            expected=f"at most {MOST_FIELD_TEXT}",
            fix="shorten it, or make it a part of the item's text",
        )
    if INVALID.search(value):
        raise DataError(
            "A string in a field contains invalid Unicode",
            got=f"{name!r}: {value[:80]!r}",
            expected="no NUL characters and no lone surrogates",
            fix="decode the source as UTF-8 and remove NUL characters",
        )
    return value


def change_fields(fields: Fields, changes: Mapping[str, Any]) -> Fields:
    """The fields with some of them changed; None removes one."""
    return validate_fields({**fields, **changes})


def dump_fields(fields: Mapping[str, FieldValue]) -> str:
    """Valid fields as JSON, the same text for the same fields."""
    return (
        json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":")) if fields else NO_FIELDS
    )


def load_fields(text: str) -> Fields:
    """Fields from what `dump_fields` has written."""
    return {} if text == NO_FIELDS else json.loads(text)


_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False}


def type_column(values: Sequence[Any]) -> list[Any]:
    """The values of one column of a table, typed where it has strings alone, as a CSV file has.

    A column of numbers becomes numbers, one of true and false becomes booleans, and all others stay strings. Digits
    with a leading zero (a postcode, an EAN) are no number, and then nothing in the column is.
    """
    given = [value for value in values if value is not None]
    if not all(isinstance(value, str) for value in given):
        return list(values)
    if given and all(value.lower() in _BOOLEANS for value in given):
        return [None if value is None else _BOOLEANS[value.lower()] for value in values]
    if given and all(_is_number(value) for value in given):
        return [None if value is None else float(value) for value in values]
    return list(values)


def _is_number(value: str) -> bool:
    return _NUMBER.fullmatch(value) is not None and abs(float(value)) <= MAX_FIELD_NUMBER


def any_fields(fields: Iterable[Fields]) -> list[Fields] | None:
    """The fields of several items; None where none of them has any."""
    found = list(fields)
    return found if any(found) else None
