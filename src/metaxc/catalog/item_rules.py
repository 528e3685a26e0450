"""The rules for the items of a catalog and for the exposure of a search, on top of `metaxc.data.input_rules`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from metaxc.catalog.catalog_errors import ConflictError
from metaxc.catalog.records import Item, ItemRow, NewClick, NewItem
from metaxc.data.click_log import Texts
from metaxc.data.input_rules import validate_id, validate_query, validate_tags, validate_text
from metaxc.data.item_fields import dump_fields, validate_fields
from metaxc.data.text_files import MAX_SECONDS, TIME_FORMAT, parse_time
from metaxc.errors import DataError

Content = NewItem | Item | ItemRow
MOST_EXPOSURE = 100.0
"""Scores are sums of a few cosine similarities: an exposure of ten ranks items by their novelty alone."""


def parse_items(lines: Iterable[str]) -> list[NewItem]:
    """Items from JSON lines of `{"id": …, "text": …, "tags": […], "fields": {…}}`; tags and fields may be left out."""
    items = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            tags, fields = validate_tags(record.get("tags", ())), validate_fields(record.get("fields", {}))
            items.append(NewItem(record["id"], record["text"], tags, fields))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                "A line is not an item",
                got=f"line {number}: {line[:80]}",
                expected='{"id": "…", "text": "…", "tags": ["…"], "fields": {"…": …}}; the last two may be left out',
                fix="correct the line; no item was added",
            ) from error
    return items


def validate_items(items: Sequence[NewItem]) -> list[NewItem]:
    """The items with normalized tags and fields, each once; two different items with one id are a `ConflictError`."""
    found: dict[str, NewItem] = {}
    for item in items:
        valid = NewItem(
            validate_id(item.id),
            validate_text(item.text, "item text"),
            validate_tags(item.tags),
            validate_fields(item.fields),
        )
        if not same_content(found.setdefault(item.id, valid), valid):
            raise ConflictError(
                "Two different items have the same id",
                got=repr(item.id),
                expected="one item per id",
                fix="give each item an id of its own",
            )
    return list(found.values())


def same_content(one: Content, other: Content) -> bool:
    """Whether two items have the same text, tags and fields; true and 1 are different values of a field."""
    return (one.text, one.tags, dump_fields(one.fields)) == (
        other.text,
        other.tags,
        dump_fields(other.fields),
    )


def validate_clicks(clicks: Sequence[NewClick]) -> list[NewClick]:
    """The clicks with their times in seconds since 1970."""
    valid = []
    for click in clicks:
        validate_query(click.query)
        at = None if click.at is None else parse_time(click.at)
        if click.at is not None and at is None:
            raise DataError(
                "The time of a click is not valid",
                got=repr(click.at),
                expected=TIME_FORMAT,
                fix=f"times of {MAX_SECONDS:g} and more are in a smaller unit than seconds",
            )
        valid.append(NewClick(click.item, click.query, at))
    return valid


def validate_model_items(items: Texts) -> None:
    """Raise where an item of a model could not be an item of a catalog: models may be older than these rules."""
    for row, (id, text) in enumerate(zip(items.ids, items.texts, strict=True)):
        try:
            validate_id(id)
            validate_text(text, "item text")
        except DataError as error:
            raise DataError(
                f"An item of the model cannot be in a catalog: {error.what}",
                got=f"item {row}, {str(id)[:80]!r}: {str(error.got)[:80]}",
                expected=error.expected,
                fix="correct the data set (`metaxc data check` lists all problems), and train again",
            ) from error


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
