"""Texts that are the same but for case and white space: leaks between parts of a split, and items as queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Rows
from metaxc.data.click_log import Texts, click_matrix


def normalise_text(text: str) -> str:
    """The text as it is compared: in lower case, with each run of white space as one space."""
    return " ".join(text.lower().split())


def find_same_texts(texts: Texts, rows: Rows, others: Texts, other_rows: Rows) -> list[tuple[int, int]]:
    """Pairs of rows with the same text, empty texts excepted; only the first other row counts."""
    first: dict[str, int] = {}
    for row in other_rows.tolist():
        first.setdefault(normalise_text(others.texts[row]), row)
    pairs = ((row, normalise_text(texts.texts[row])) for row in rows.tolist())
    return [(row, first[text]) for row, text in pairs if text and text in first]


def rows_by_text(texts: Sequence[str]) -> dict[str, list[int]]:
    """The rows of each text, as it is compared."""
    rows: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        rows.setdefault(normalise_text(text), []).append(row)
    return rows


def own_text_pairs(queries: Sequence[str], item_rows: Mapping[str, list[int]], items: int) -> csr_array:
    """(queries, items) float32: 1 where a query is the item's own text.

    Args:
        queries: The texts of the queries.
        item_rows: From `rows_by_text` of the texts of the items.
        items: The number of items.
    """
    pairs = [
        (row, column)
        for row, text in enumerate(queries)
        for column in item_rows.get(normalise_text(text), ())
    ]
    found = np.asarray(pairs, np.int64).reshape(-1, 2)
    return click_matrix(found[:, 0], found[:, 1], (len(queries), items))
