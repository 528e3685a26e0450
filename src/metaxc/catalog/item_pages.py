"""Lists of items in pages, in the order in which the items were added."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaxc.catalog.filter_follower import FilterFollower, keep_passing
from metaxc.catalog.item_filters import join_filters
from metaxc.catalog.item_queries import find_items, read_items
from metaxc.catalog.records import Page, State
from metaxc.errors import DataError

MOST_LISTED = 1_000
"""Items of one page at most."""


def list_items(
    filters: FilterFollower,
    *,
    filter: object = None,
    tags: Sequence[str] = (),
    states: Sequence[State] = (),
    after: str | None = None,
    limit: int = 100,
) -> Page:
    """One page of the items that pass the filters.

    Args:
        filters: The columns by which the catalog filters, with its store.
        filter: List only items that pass this filter (`metaxc.catalog.item_filters`).
        tags: List only items that have all of these tags.
        states: List only items in one of these states; empty lists all.
        after: `next` of the page before; None begins with the first item.
        limit: Items of a page, at most `MOST_LISTED`. A page may have fewer and not be the last one, where items were
            deleted or changed while it was read; `next` is None on the last one alone.
    """
    if after is not None and not (after.isascii() and after.isdigit() and len(after) < 19):
        raise DataError(
            "Invalid page cursor",
            got=repr(after),
            expected="`next` of an earlier page",
            fix="leave `after` out to start with the first page",
        )
    limit, last = min(max(limit, 1), MOST_LISTED), int(after or 0)
    wanted = join_filters(filter, tags, states)
    if wanted is None:
        found = read_items(filters.store, "WHERE key > ? ORDER BY key LIMIT ?", (last, limit + 1))
        keys = list(found)
    else:
        allowed = np.sort(filters.select(wanted)[0])
        start = int(np.searchsorted(allowed, last, side="right"))
        keys = allowed[start : start + limit + 1].tolist()
        found = keep_passing(wanted, find_items(filters.store, keys))
    following = str(keys[limit - 1]) if len(keys) > limit else None
    return Page(tuple(found[key] for key in keys[:limit] if key in found), following)
