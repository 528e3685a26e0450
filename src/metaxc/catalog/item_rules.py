"""What a catalog takes: ids, texts, tags and queries that can be stored, shown and found again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metaxc.catalog.catalog_errors import ConflictError
from metaxc.catalog.records import NewItem
from metaxc.catalog.rows import tidy_tags
from metaxc.errors import DataError

MOST_ID = 200
MOST_TEXT = 20_000
MOST_TAG = 100
MOST_TAGS = 50


def validate_items(items: Sequence[NewItem]) -> list[NewItem]:
    """The items with tidy tags, each once; two of one id that differ are a `ConflictError`."""
    found: dict[str, NewItem] = {}
    for item in items:
        tidy = NewItem(validate_id(item.id), validate_text(item.text), validate_tags(item.tags))
        if found.setdefault(item.id, tidy) != tidy:
            raise ConflictError("Two items of one id differ", got=repr(item.id), expected="one item per id")
    return list(found.values())


def validate_id(name: str) -> str:
    """An id: short, without control characters."""
    _is_text(name, "id", MOST_ID)
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in name):
        raise DataError("An id with control characters", got=repr(name))
    return name


def validate_text(text: str) -> str:
    """An item's text."""
    return _is_text(text, "item", MOST_TEXT)


def validate_query(text: str) -> str:
    """A query's text."""
    return _is_text(text, "query", MOST_TEXT)


def validate_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags, each once, in order."""
    if isinstance(tags, str):
        raise DataError("One tag in place of a list", got=repr(tags), fix=f"pass [{tags!r}]")
    tidy = tidy_tags(_is_text(tag, "tag", MOST_TAG) for tag in tags)
    if len(tidy) > MOST_TAGS:
        raise DataError("Too many tags", got=len(tidy), expected=f"at most {MOST_TAGS}")
    return tidy


def _is_text(text: str, what: str, most: int) -> str:
    if not isinstance(text, str):
        raise DataError(f"The {what} is not a text", got=type(text).__name__)
    if not text.strip():
        raise DataError(f"An empty {what}", got=repr(text), expected=f"the {what}'s text")
    if len(text) > most:
        raise DataError(
            f"The {what} is too long", got=f"{len(text):,} characters", expected=f"at most {most:,}"
        )
    if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        raise DataError(
            f"The {what} holds characters that are none", got=repr(text[:80]), expected="Unicode text"
        )
    return text
