"""Filters over columns choose what plain Python over the items would, after any changes."""

import contextlib
import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaxc.catalog import item_columns
from metaxc.catalog.item_columns import FilteredItem, ItemColumns, find_kind
from metaxc.catalog.item_filters import parse_filter
from metaxc.errors import DataError

NAMES = ("price", "brand", "mixed")
STRINGS = st.sampled_from(["x", "y", "z", ""])
NUMBERS = st.sampled_from([-1, 0, 1, 2, 2.5])
SCALARS = STRINGS | NUMBERS | st.booleans()
LISTS = st.lists(STRINGS, min_size=1, max_size=3, unique=True)
FIELDS = st.fixed_dictionaries(
    {}, optional={"price": NUMBERS, "brand": STRINGS | LISTS, "mixed": SCALARS | LISTS}
)
TAGS, STATES = ("red", "blue"), ("novel", "clicked", "observed")
ITEMS = st.builds(
    FilteredItem,
    st.integers(0, 12),
    st.lists(st.sampled_from(TAGS), unique=True),
    st.sampled_from(STATES),
    FIELDS,
)
OPERATORS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("lt", "lte", "gt", "gte"), NUMBERS),
        "eq": SCALARS,
        "in": st.lists(SCALARS, min_size=1, max_size=3),
        "exists": st.booleans(),
    },
).filter(bool)
CONDITIONS = (
    st.builds(lambda name, given: {"field": name, **given}, st.sampled_from((*NAMES, "absent")), OPERATORS)
    | st.builds(lambda tag: {"tag": tag}, st.sampled_from((*TAGS, "absent")))
    | st.builds(lambda tags: {"tag": {"in": tags}}, st.lists(st.sampled_from(TAGS), min_size=1))
    | st.builds(lambda state: {"state": state}, st.sampled_from(STATES))
    | st.builds(lambda states: {"state": {"in": states}}, st.lists(st.sampled_from(STATES), min_size=1))
)
FILTERS = st.recursive(
    CONDITIONS,
    lambda inner: (
        st.builds(lambda parts: {"and": parts}, st.lists(inner, min_size=1, max_size=3))
        | st.builds(lambda parts: {"or": parts}, st.lists(inner, min_size=1, max_size=3))
        | st.builds(lambda part: {"not": part}, inner)
    ),
    max_leaves=6,
)
CHANGES = st.lists(
    st.tuples(st.just("update"), st.lists(ITEMS, unique_by=lambda item: item.key, max_size=4))
    | st.tuples(st.just("remove"), st.lists(st.integers(0, 12), max_size=4)),
    max_size=12,
)


def kind(value):
    return "bool" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"


def values(item, name):
    value = item.fields.get(name)
    return [] if value is None else value if isinstance(value, list) else [value]


def holds(item, condition):
    """What a filter means, for one item at a time."""
    if "and" in condition:
        return all(holds(item, part) for part in condition["and"])
    if "or" in condition:
        return any(holds(item, part) for part in condition["or"])
    if "not" in condition:
        return not holds(item, condition["not"])
    for name, own in (("tag", item.tags), ("state", [item.state])):
        if name in condition:
            wanted = condition[name]["in"] if isinstance(condition[name], dict) else [condition[name]]
            return any(one in own for one in wanted)
    own = values(item, condition["field"])
    for name, operand in condition.items():
        if name == "exists" and bool(own) != operand:
            return False
        if name in ("eq", "in"):
            wanted = [operand] if name == "eq" else operand
            if not any(one == other and kind(one) == kind(other) for one in own for other in wanted):
                return False
        if name in ("lt", "lte", "gt", "gte"):
            compare = getattr(operator, name.replace("te", "e"))
            if not any(kind(one) == "number" and compare(one, operand) for one in own):
                return False
    return True


def mistyped(items, condition):
    """Whether some part compares a field with types that it has in no item, though it has others."""
    for parts in ("and", "or"):
        if parts in condition:
            return any(mistyped(items, part) for part in condition[parts])
    if "not" in condition:
        return mistyped(items, condition["not"])
    types = {kind(one) for item in items for one in values(item, condition.get("field"))}
    for name, operand in condition.items():
        if name in ("lt", "lte", "gt", "gte", "eq", "in"):
            wanted = {kind(one) for one in (operand if name == "in" else [operand])}
            if types and not types & wanted:
                return True
    return False


@settings(deadline=None, max_examples=400)
@given(changes=CHANGES, filter=FILTERS)
def test_columns_answer_as_plain_python_would(changes, filter):
    known, columns, before = {}, ItemColumns(), item_columns.MIN_DEAD
    item_columns.MIN_DEAD = 2  # so that columns are written anew often
    try:
        for change, given_items in changes:
            if change == "update":
                columns.update(given_items)
                known |= {item.key: item for item in given_items}
            else:
                columns.remove(given_items)
                for key in given_items:
                    known.pop(key, None)
            with contextlib.suppress(DataError):
                columns.select(parse_filter(filter))  # what is kept of it must not show later
    finally:
        item_columns.MIN_DEAD = before
    assert len(columns) == len(known)
    if mistyped(known.values(), filter):
        with pytest.raises(DataError, match="value of another type"):
            columns.select(parse_filter(filter))
        return
    found = columns.select(parse_filter(filter)).tolist()
    assert sorted(found) == sorted(key for key, item in known.items() if holds(item, filter))


def test_a_type_that_no_item_has_is_an_error_that_names_both():
    columns = ItemColumns([FilteredItem(n, [], "novel", {"price": n}) for n in range(3)])
    with pytest.raises(DataError, match="field 'price', eq: the string '1'") as caught:
        columns.select(parse_filter({"field": "price", "eq": "1"}))
    assert caught.value.expected == "the type that the field has: number"
    assert columns.select(parse_filter({"field": "price", "in": ["1", 1]})).tolist() == [1]
    columns.update([FilteredItem(9, [], "novel", {"price": "1"})])
    assert columns.select(parse_filter({"field": "price", "eq": "1"})).tolist() == [9]
    columns.remove([9])
    with pytest.raises(DataError):
        columns.select(parse_filter({"field": "price", "eq": "1"}))


def test_kinds():
    assert [find_kind(value) for value in (True, 1, 1.5, "1")] == ["boolean", "number", "number", "string"]


def test_changes_leave_no_residue():
    """Values of replaced items are dropped, with the strings that nothing has any more."""
    columns = ItemColumns()
    for turn in range(60):
        columns.update([FilteredItem(key, [], "novel", {"name": f"{turn}-{key}"}) for key in range(100)])
    column = columns._fields["name"]["string"]
    assert column.count <= 100 + item_columns.MIN_DEAD + 100
    assert len(column.codes) <= column.count
    assert columns.select(parse_filter({"field": "name", "eq": "59-7"})).tolist() == [7]
    assert columns.select(parse_filter({"field": "name", "eq": "58-7"})).tolist() == []
