"""The rules for the items of a catalog and for the exposure of a search, on top of `metaxc.data.input_rules`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaxc.catalog.catalog_errors import ConflictError
from metaxc.catalog.records import Item, ItemRow, NewClick, NewItem
from metaxc.catalog.vector_rules import same_vector, validate_embedding
from metaxc.data.click_log import Texts
from metaxc.data.input_rules import validate_id, validate_query, validate_tags, validate_text
from metaxc.data.item_fields import dump_fields, validate_fields
from metaxc.data.text_files import MAX_SECONDS, TIME_FORMAT, parse_time
from metaxc.errors import DataError

Content = NewItem | Item | ItemRow
MOST_EXPOSURE = 100.0
"""Scores are sums of a few cosine similarities: an exposure of ten ranks items by their novelty alone."""


def validate_item(item: NewItem, dim: int) -> NewItem:
    """The item with normalized tags and fields and, if it has one, a unit vector of `dim` numbers."""
    return NewItem(
        validate_id(item.id),
        validate_text(item.text, "item text"),
        validate_tags(item.tags),
        validate_fields(item.fields),
        None if item.vector is None else validate_embedding(item.vector, dim, "item's vector"),
    )


def validate_items(items: Sequence[NewItem], dim: int) -> list[NewItem]:
    """The items as `validate_item` returns them, each once; two different items with one id are a `ConflictError`."""
    found: dict[str, NewItem] = {}
    for item in items:
        valid = validate_item(item, dim)
        first = found.setdefault(item.id, valid)
        if not same_content(first, valid) or not _same_vectors(first.vector, valid.vector):
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


def _same_vectors(one: Any, other: Any) -> bool:
    return one is other or (one is not None and other is not None and same_vector(one, other))


def validate_clicks(clicks: Sequence[NewClick], dim: int) -> list[NewClick]:
    """The clicks with their times in seconds since 1970 and, where they have one, a unit vector of `dim` numbers."""
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
        vector = None if click.vector is None else validate_embedding(click.vector, dim, "query's vector")
        valid.append(NewClick(click.item, click.query, at, vector))
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
