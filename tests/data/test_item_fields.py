"""The rules for fields: what is a value, how it is normalized, and how the columns of a table get their types."""

import pytest

from metaxc.data.item_fields import (
    MAX_FIELD_NUMBER,
    MOST_FIELD_LIST,
    MOST_FIELD_TEXT,
    MOST_FIELDS,
    change_fields,
    dump_fields,
    load_fields,
    type_column,
    validate_fields,
)
from metaxc.errors import DataError


def test_valid_fields_are_sorted_and_numbers_have_one_form():
    given = {
        "price": 20.0,
        "brand": "x",
        "in_stock": True,
        "sizes": ("s", "m", "s"),
        "weight": 0.5,
        "none": None,
    }
    fields = validate_fields(given | {"empty": []})
    assert list(fields) == ["brand", "in_stock", "price", "sizes", "weight"]
    assert dump_fields(fields) == '{"brand":"x","in_stock":true,"price":20,"sizes":["s","m"],"weight":0.5}'
    assert load_fields(dump_fields(fields)) == fields
    assert dump_fields(validate_fields({"zero": -0.0})) == '{"zero":0}'
    assert (dump_fields({}), load_fields("{}")) == ("{}", {})


def test_true_and_one_are_different_values():
    assert dump_fields({"a": True}) != dump_fields({"a": 1})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"a": {"b": 1}}, "no known type"),
        ({"a": [1, 2]}, "no known type"),
        ({"a": ["x", True]}, "no known type"),
        ({"a": float("nan")}, "out of range"),
        ({"a": float("inf")}, "out of range"),
        ({"a": MAX_FIELD_NUMBER + 2}, "out of range"),
        ({"a": -(10**400)}, "out of range"),
        ({"a": "x" * (MOST_FIELD_TEXT + 1)}, "too long"),
        ({"a": ["x\0"]}, "invalid Unicode"),
        ({"a": "\ud800"}, "invalid Unicode"),
        ({"a": [str(n) for n in range(MOST_FIELD_LIST + 1)]}, "too many strings"),
        ({str(n): n for n in range(MOST_FIELDS + 1)}, "Too many fields"),
        ({str(n): "x" * 500 for n in range(40)}, "fields are too large"),
        ({"": 1}, "field name is empty"),
        ({"a\tb": 1}, "field name contains control"),
        ({"a" * 65: 1}, "field name is too long"),
        ([("a", 1)], "must be an object"),
    ],
)
def test_what_is_no_field_is_an_error(fields, message):
    with pytest.raises(DataError, match=message):
        validate_fields(fields)


def test_changes_replace_add_and_remove():
    assert change_fields({"a": 1, "b": "x"}, {"a": 2, "b": None, "c": ["y"]}) == {"a": 2, "c": ["y"]}
    with pytest.raises(DataError, match="Too many fields"):
        change_fields({str(n): n for n in range(MOST_FIELDS)}, {"one more": 1})


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        (["1", None, "-2.5e1"], [1.0, None, -25.0]),
        (["True", "false", None], [True, False, None]),
        (["1", "x"], ["1", "x"]),
        (["01067", "22765"], ["01067", "22765"]),  # postcodes
        (["99999999999999999999"], ["99999999999999999999"]),
        (["nan", "1"], ["nan", "1"]),
        ([1, "2"], [1, "2"]),
        ([None], [None]),
    ],
)
def test_a_column_of_strings_is_typed_as_a_whole(given, typed):
    found = type_column(given)
    assert found == typed
    assert list(map(type, found)) == list(map(type, typed))
