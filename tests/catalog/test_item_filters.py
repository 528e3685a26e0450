"""The filter language: what is accepted, how it is normalized, and what the errors say."""

import json

import pytest

from metaxc.catalog.item_filters import MOST_CONDITIONS, MOST_DEPTH, dump_filter, join_filters, parse_filter
from metaxc.errors import DataError

NESTED = {"and": [{"tag": "x"}, {"not": {"or": [{"state": "novel"}, {"field": "p", "gte": 1, "lt": 2.5}]}}]}


def test_a_filter_is_the_same_as_json_and_as_a_mapping():
    assert dump_filter(parse_filter(NESTED)) == dump_filter(parse_filter(json.dumps(NESTED)))
    assert json.loads(dump_filter(parse_filter(NESTED))) == NESTED
    valid = parse_filter(NESTED)
    assert parse_filter(valid) == valid


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ({"field": "price", "below": 20}, "unknown operator 'below'; .* eq, in, lt, lte, gt, gte, exists"),
        ({"field": "price"}, "no operator"),
        ({"price": 20}, "one of and, or, not, field, tag, state"),
        ({}, "one of and, or, not, field, tag, state"),
        ([], "one of and, or, not, field, tag, state"),
        ("price < 20", "JSON"),
        ({"field": "price", "lt": "20"}, r"got: lt: '20'\s+expected: Input should be a valid number"),
        ({"field": "price", "lt": True}, "valid number"),
        ({"field": "price", "lt": float("inf")}, "finite"),
        ({"field": "price", "eq": None}, "true, false, a number"),
        ({"field": "price", "eq": [1]}, "true, false, a number"),
        ({"field": "price", "in": [1, {}]}, r"got: in\.1"),
        ({"field": "price", "in": []}, "at least 1"),
        ({"field": "price", "exists": 1}, "valid boolean"),
        ({"field": "", "exists": True}, "at least 1"),
        ({"tag": "x", "eq": 1}, "not permitted"),
        ({"tag": "a\nb"}, "control characters"),
        ({"state": "old"}, "'novel', 'clicked' or 'observed'"),
        ({"and": []}, "at least 1"),
        ({"and": [{"tag": "x"}, {"or": [{"field": "p", "lt": "x"}]}]}, r"got: and\.1\.or\.0\.lt: 'x'"),
        ({"not": [{"tag": "x"}]}, "one of and, or, not"),
    ],
)
def test_an_invalid_filter_is_named(filter, message):
    with pytest.raises(DataError, match=f"The filter is not valid(.|\n)*{message}"):
        parse_filter(filter)


def test_depth_and_size_are_bounded():
    deep = {"tag": "x"}
    for _ in range(MOST_DEPTH - 1):
        deep = {"not": deep}
    parse_filter(deep)
    wide = {"or": [{"and": [{"tag": "x"}] * 19}] * 5}
    assert MOST_CONDITIONS + 1 == 1 + 5 + 5 * 19
    for wrong in ({"not": deep}, wide):
        with pytest.raises(DataError, match=f"at most {MOST_CONDITIONS} parts, {MOST_DEPTH} levels"):
            parse_filter(wrong)
    for _ in range(5_000):
        deep = {"not": deep}
    with pytest.raises(DataError, match="levels deep"):
        parse_filter(deep)


def test_tags_and_states_become_conditions():
    assert join_filters(None) is None
    assert json.loads(dump_filter(join_filters(None, ["a"]))) == {"tag": "a"}
    joined = join_filters({"field": "p", "lt": 1}, ["a", "b"], ["novel"])
    expected = [{"field": "p", "lt": 1}, {"tag": "a"}, {"tag": "b"}, {"state": {"in": ["novel"]}}]
    assert json.loads(dump_filter(joined)) == {"and": expected}
    with pytest.raises(DataError, match="Unknown state"):
        join_filters(None, states=["old"])
