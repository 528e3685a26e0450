"""Which column of a table is what: names that tables of products and search logs usually have, and suggestions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

UBI_QUERY, UBI_QUERY_ID, UBI_ACTION = "user_query", "query_id", "action_name"
UBI_OBJECT = "event_attributes.object.object_id"
"""Columns of a log in the User Behavior Insights schema."""


def _split(names: str) -> tuple[str, ...]:
    return tuple(names.split())


KNOWN_NAMES = {
    "id": _split(
        "id item_id product_id sku asin isbn ean gtin article_id doc_id document_id object_id item product code uid url"
    ),
    "title": _split(
        "title name text product_title product_name item_name item_title heading label display_name"
    ),
    "description": _split("description product_description desc summary abstract body content details"),
    "tags": _split("tags brand category categories department product_type"),
    "first_seen": _split(
        "first_seen created_at created published_at published date_added added_at launch_date release_date"
    ),
    "query": _split(
        "query query_text user_query search_query search_term search_phrase search search_text keywords keyword term "
        "phrase q"
    ),
    "query_id": _split("query_id id search_id qid"),
    "item": _split(
        f"item_id product_id clicked_item clicked_product clicked_id sku asin isbn article_id doc_id document_id "
        f"object_id {UBI_OBJECT} item product id"
    ),
    "time": _split(
        "time timestamp ts event_time event_timestamp clicked_at datetime date_time date created_at"
    ),
    "count": _split("count clicks n click_count num_clicks frequency freq"),
}
"""Names of each kind of column, lower-case, the most telling first."""

_HEADER = {*KNOWN_NAMES["query"], *KNOWN_NAMES["query_id"], *KNOWN_NAMES["item"]} - {"q", "id"}
_SEPARATORS = re.compile(r"[\s\-./]+")


def normalise(name: str) -> str:
    """A column's name as it is compared: lower-case, words joined by underscores ("Product ID" is product_id)."""
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())
    return _SEPARATORS.sub("_", split).lower().strip("_")


def guess_columns(kind: str, columns: Sequence[str]) -> list[str]:
    """The columns whose names are those of a kind (a key of `KNOWN_NAMES`), the most telling first."""
    names = {normalise(known): place for place, known in enumerate(KNOWN_NAMES[kind])}
    found = [column for column in columns if normalise(column) in names]
    return sorted(found, key=lambda column: names[normalise(column)])


def suggest_columns(name: str, columns: Sequence[str]) -> list[str]:
    """The columns whose names are most like `name`."""
    of = {normalise(column): column for column in reversed(columns)}
    return [of[found] for found in get_close_matches(normalise(name), list(of), n=3, cutoff=0.5)]


def looks_like_header(values: Sequence[str]) -> bool:
    """Whether the first two values of a line of clicks are names of columns."""
    return len(values) >= 2 and all(normalise(value) in _HEADER for value in values[:2])
