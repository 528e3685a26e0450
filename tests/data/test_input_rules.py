"""The rules at their borders, and that the OpenAPI patterns accept and refuse the same names and texts."""

import re

import pytest

from metaxc.data.input_rules import (
    ID_PATTERN,
    MOST_ID,
    MOST_TAG,
    MOST_TAGS,
    MOST_TEXT,
    RESERVED_PATTERN,
    TEXT_PATTERN,
    validate_id,
    validate_query,
    validate_tag,
    validate_tags,
    validate_text,
)
from metaxc.errors import DataError

INVISIBLE = ["", " ", "\t\n", "\u200b", "\xad \ufeff", "\x85", "\u3000"]


@pytest.mark.parametrize("validate", [validate_id, validate_tag, validate_text, validate_query])
@pytest.mark.parametrize("text", [*INVISIBLE, "a\0", "a\ud800", 7, None])
def test_every_rule_refuses_what_cannot_be_stored_or_seen(validate, text):
    with pytest.raises(DataError):
        validate(text)


@pytest.mark.parametrize(
    "text", ["a", "ä\u200bb", "日本", "a b", "...", "a/b.java", "/etc/x", "a//b", "a..b/.c", "\xadx"]
)
def test_every_rule_accepts_visible_text_unchanged(text):
    for validate in (validate_id, validate_tag, validate_text, validate_query):
        assert validate(text) == text


@pytest.mark.parametrize(
    "name", ["a\nb", "a\x7f", "a\x9fb", "\ufeffa", ".", "..", "a/../b", "../a", "a/.", "/./"]
)
def test_ids_and_tags_are_stricter_than_texts(name):
    for validate in (validate_id, validate_tag):
        with pytest.raises(DataError):
            validate(name)
    assert validate_text(name) == validate_query(name) == name


@pytest.mark.parametrize(
    ("validate", "most"),
    [
        (validate_id, MOST_ID),
        (validate_tag, MOST_TAG),
        (validate_text, MOST_TEXT),
        (validate_query, MOST_TEXT),
    ],
)
def test_lengths_end_at_the_limit(validate, most):
    assert validate("a" * most)
    with pytest.raises(DataError, match=f"{most + 1:,} characters"):
        validate("a" * (most + 1))


def test_tags_are_stripped_sorted_and_counted_as_given():
    assert validate_tags([" red", "blue", "red"]) == ("blue", "red")
    assert validate_tags(["red"] * MOST_TAGS) == ("red",)
    with pytest.raises(DataError, match="Too many tags"):
        validate_tags(["red"] * (MOST_TAGS + 1))
    with pytest.raises(DataError, match="must be a list"):
        validate_tags("red")


@pytest.mark.parametrize(
    "text",
    [
        *INVISIBLE,
        "a\0",
        "a",
        "a\nb",
        "a\x9fb",
        "ä\u200bb",
        "\u3000日本",
        "\ufeffa",
        "a\ufeff",
        "a/../b",
        "../a",
        "..a",
        "a/b",
    ],
)
def test_the_patterns_say_what_the_functions_do(text):
    patterns = ((ID_PATTERN, RESERVED_PATTERN, validate_id), (TEXT_PATTERN, "(?!)", validate_text))
    for pattern, forbidden, validate in patterns:
        try:
            valid = validate(text) == text
        except DataError:
            valid = False
        assert bool(re.search(pattern, text) and not re.search(forbidden, text)) == valid
