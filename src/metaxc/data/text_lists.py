"""Texts as programs have them: lists, and columns of pandas, polars, Arrow and numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from metaxc.arrays import Floats
from metaxc.data.source_tables import frame_columns
from metaxc.errors import DataError

TEXT_COLUMN = "text"
"""The column that is taken from a data frame of several columns."""


def as_texts(given: Any, what: str = "row") -> Sequence[str] | Floats:
    """A list of texts from a list, a pandas or polars Series, an Arrow or numpy array of strings, or a data frame with
    one column or with a column "text"; (n, dim) vectors are returned as they are.

    Args:
        given: The texts or vectors.
        what: Names one of them in errors.
    """
    if isinstance(given, str):
        raise DataError(f"Expected a list of texts, got one {what}", got=repr(given), fix=f"pass [{given!r}]")
    if isinstance(given, np.ndarray):
        if given.dtype.kind not in "OUT":
            return given
        texts = given.tolist()
    elif isinstance(given, list | tuple):
        texts = given
    elif hasattr(given, "columns") or hasattr(given, "column_names"):
        texts = _text_column(given, what)
    else:
        values = next(
            (getattr(given, name) for name in ("to_pylist", "to_list") if hasattr(given, name)), None
        )
        texts = list(given) if values is None else values()
    wrong = next((row for row, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise DataError(
            f"A {what} is not a string",
            got=f"position {wrong}: {texts[wrong]!r}",
            expected="a string",
            fix="remove empty values, and convert others to strings",
        )
    return cast("Sequence[str]", texts)


def list_texts(given: Any) -> list[str]:
    """A list of texts, of everything that `as_texts` accepts but vectors."""
    texts = as_texts(given)
    if isinstance(texts, np.ndarray):
        raise DataError("Texts are needed, not vectors", got=f"an array of {texts.dtype}", expected="strings")
    return cast("list[str]", texts)


def _text_column(frame: Any, what: str) -> list[object]:
    columns = frame_columns(frame)
    name = TEXT_COLUMN if TEXT_COLUMN in columns else next(iter(columns), "")
    if not columns or (len(columns) > 1 and name != TEXT_COLUMN):
        raise DataError(
            f"Which column has the text of each {what}?",
            got=", ".join(columns) or "no column",
            expected=f"one column, or one that is named {TEXT_COLUMN}",
            fix='pass the column itself, such as frame["title"]',
        )
    return list(columns[name]())
