"""Texts that stand on both sides of a split, where knowing the one is knowing the other."""

from __future__ import annotations

from metaxc.arrays import Mask
from metaxc.data.dataset import Texts


def folded(text: str) -> str:
    """The text as it is compared: lower case, runs of white space as one space."""
    return " ".join(text.lower().split())


def novel_twins(items: Texts, novel: Mask) -> list[tuple[int, int]]:
    """(novel row, observed row) of each novel item whose text is also that of an observed item.

    Its classifier could be had by looking the text up, so it is not novel in earnest. Empty texts do not
    count.
    """
    observed: dict[str, int] = {}
    for row, text in enumerate(items.texts):
        if not novel[row]:
            observed.setdefault(folded(text), row)
    return _twins(items, [row for row in range(len(items)) if novel[row]], observed)


def query_twins(test: Texts, train: Texts) -> list[tuple[int, int]]:
    """(test row, train row) of each test query whose text also stands in train."""
    known: dict[str, int] = {}
    for row, text in enumerate(train.texts):
        known.setdefault(folded(text), row)
    return _twins(test, list(range(len(test))), known)


def _twins(texts: Texts, rows: list[int], known: dict[str, int]) -> list[tuple[int, int]]:
    pairs = ((row, folded(texts.texts[row])) for row in rows)
    return [(row, known[text]) for row, text in pairs if text and text in known]
