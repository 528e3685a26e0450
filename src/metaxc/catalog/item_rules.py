"""The validation rules for ids, texts, tags, queries and exposures: the catalog and the HTTP service apply the same.

Each `validate_*` function returns its argument, normalized where it says so, or raises a `DataError`. `ID_PATTERN` and
`TEXT_PATTERN` express the same rules as regular expressions for the OpenAPI schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from metaxc.catalog.catalog_errors import ConflictError
from metaxc.catalog.records import NewItem
from metaxc.errors import DataError

MOST_ID = 200
MOST_TEXT = 20_000
MOST_TAG = 100
MOST_TAGS = 50
MOST_EXPOSURE = 100.0
"""Scores are sums of a few cosine similarities: an exposure of ten ranks items by their novelty alone."""

CONTROL = r"\x00-\x1f\x7f-\x9f"
INVISIBLE = CONTROL + r"\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\s"
"""Control and format characters and white space: an encoder gets nothing from a text of these alone."""

ID_PATTERN = rf"^[^{CONTROL}]*[^{INVISIBLE}][^{CONTROL}]*$"
TEXT_PATTERN = rf"^[^\x00]*[^{INVISIBLE}][^\x00]*$"
RESERVED_IDS = (".", "..")
"""Names that a URL path resolves away: an item of such an id could not be requested over HTTP."""

_CONTROL = re.compile(f"[{CONTROL}]")
_VISIBLE = re.compile(f"[^{INVISIBLE}]")
_INVALID = re.compile("[\x00\ud800-\udfff]")


def parse_items(lines: Iterable[str]) -> list[NewItem]:
    """Items from JSON lines of `{"id": …, "text": …, "tags": […]}`; tags may be left out."""
    items = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            items.append(NewItem(record["id"], record["text"], validate_tags(record.get("tags", ()))))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                "A line is not an item",
                got=f"line {number}: {line[:80]}",
                expected='{"id": "…", "text": "…", "tags": ["…"]}; tags may be left out',
                fix="correct the line; no item was added",
            ) from error
    return items


def validate_items(items: Sequence[NewItem]) -> list[NewItem]:
    """The items with normalized tags, each once; two different items with one id are a `ConflictError`."""
    found: dict[str, NewItem] = {}
    for item in items:
        valid = NewItem(validate_id(item.id), validate_text(item.text), validate_tags(item.tags))
        if found.setdefault(item.id, valid) != valid:
            raise ConflictError(
                "Two different items have the same id",
                got=repr(item.id),
                expected="one item per id",
                fix="give each item an id of its own",
            )
    return list(found.values())


def validate_id(id: str) -> str:
    """An item's id: visible, at most `MOST_ID` characters, no control characters, and not `.` or `..`."""
    return _validate_name(id, "id", MOST_ID)


def validate_tag(tag: str) -> str:
    """A tag: the rules of an id, at most `MOST_TAG` characters."""
    return _validate_name(tag, "tag", MOST_TAG)


def validate_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """An item's tags, at most `MOST_TAGS`; returned stripped, sorted and without duplicates."""
    if isinstance(tags, str):
        raise DataError(
            "Tags must be a list", got=repr(tags), expected="a list of strings", fix=f"pass [{tags!r}]"
        )
    valid = [validate_tag(tag) for tag in tags]
    if len(valid) > MOST_TAGS:
        raise DataError(
            "Too many tags", got=len(valid), expected=f"at most {MOST_TAGS}", fix="remove some tags"
        )
    return tuple(sorted({tag.strip() for tag in valid}))


def validate_text(text: str) -> str:
    """An item's text: at most `MOST_TEXT` characters, at least one of them visible."""
    return _validate_string(text, "item text", MOST_TEXT)


def validate_query(query: str) -> str:
    """A query: the rules of an item's text."""
    return _validate_string(query, "query", MOST_TEXT)


def validate_exposure(exposure: float) -> float:
    """An exposure: a finite number, at most `MOST_EXPOSURE` in size."""
    if not -MOST_EXPOSURE <= exposure <= MOST_EXPOSURE:
        raise DataError(
            "The exposure is out of range",
            got=exposure,
            expected=f"a number from {-MOST_EXPOSURE:g} to {MOST_EXPOSURE:g}",
            fix="leave it out to use the value chosen in training",
        )
    return exposure


def _validate_name(name: str, what: str, most: int) -> str:
    _validate_string(name, what, most)
    if _CONTROL.search(name):
        raise DataError(
            f"The {what} contains control characters",
            got=repr(name),
            expected="printable characters only",
            fix="remove line breaks, tabs and other control characters",
        )
    if name in RESERVED_IDS:
        raise DataError(
            f"The {what} is reserved", got=repr(name), expected="anything but . and ..", fix="rename it"
        )
    return name


def _validate_string(text: str, what: str, most: int) -> str:
    if not isinstance(text, str):
        raise DataError(f"The {what} is not a string", got=type(text).__name__, expected="a string")
    if not _VISIBLE.search(text):
        raise DataError(
            f"The {what} is empty", got=repr(text[:80]), expected="at least one visible character"
        )
    if len(text) > most:
        raise DataError(
            f"The {what} is too long",
            got=f"{len(text):,} characters",
            expected=f"at most {most:,}",
            fix="shorten it",
        )
    if _INVALID.search(text):
        raise DataError(
            f"The {what} contains invalid Unicode",
            got=repr(text[:80]),
            expected="no NUL characters and no lone surrogates",
            fix="decode the source as UTF-8 and remove NUL characters",
        )
    return text
