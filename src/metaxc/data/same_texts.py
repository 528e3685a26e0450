"""Texts that are the same but for case and white space: leaks between parts of a split, and items as queries."""

from __future__ import annotations

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


def own_text_pairs(queries: Texts, items: Texts) -> csr_array:
    """(queries, items) float32: 1 where a query is the item's own text."""
    row_of: dict[str, list[int]] = {}
    for row, text in enumerate(queries.texts):
        row_of.setdefault(normalise_text(text), []).append(row)
    pairs = [
        (row, column)
        for column, text in enumerate(items.texts)
        for row in row_of.get(normalise_text(text), ())
    ]
    found = np.asarray(pairs, np.int64).reshape(-1, 2)
    return click_matrix(found[:, 0], found[:, 1], (len(queries), len(items)))
