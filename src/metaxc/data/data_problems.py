"""A problem of a data set file, and what ids and texts may be."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Severity = Literal["error", "warning", "note"]

BYTE_ORDER_MARK = "\ufeff"
_BAD_ID = re.compile(f"[\t\n\r]|^{BYTE_ORDER_MARK}")


@dataclass(frozen=True)
class Problem:
    """Something about one line of one file, or about the file.

    Args:
        severity: "error" where the data cannot be read, "warning" where numbers made from it would mislead,
            "note" where it may be meant.
        kind: A few words, the same for every problem of this kind.
        file: File name.
        line: Counted from 1 (a row, in a parquet file); None where the whole file is meant.
        message: What is wrong, one sentence.
        got: What was found.
        expected: What was expected.
    """

    severity: Severity
    kind: str
    file: str
    line: int | None
    message: str
    got: str | None = None
    expected: str | None = None

    def __str__(self) -> str:
        detail = [f"{name} {text}" for name, text in (("got", self.got), ("expected", self.expected)) if text]
        return f"{self.place}: {self.message}" + (f" ({'; '.join(detail)})" if detail else "")

    @property
    def place(self) -> str:
        """File, and line where there is one."""
        return self.file if self.line is None else f"{self.file}, line {self.line}"


Reporter = Callable[[Problem], None]


def error(
    path: Path, line: int | None, kind: str, message: str, got: object = None, expected: str | None = None
) -> Problem:
    """A problem that keeps the file from being read; `got` is cut to a readable length."""
    return Problem("error", kind, path.name, line, message, None if got is None else shown(got), expected)


def shown(value: object, longest: int = 80) -> str:
    """The value as an error shows it: at most `longest` characters."""
    text = repr(value[: longest * 2]) if isinstance(value, str | bytes) else repr(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def id_problem(name: str) -> str | None:
    """Why the id cannot stand in a data set folder; None if it can."""
    if not name:
        return "The id is empty"
    if _BAD_ID.search(name):
        return "The id holds a tab, a line end or a leading byte-order mark"
    return None if is_unicode(name) else "The id holds half a surrogate pair"


def text_problem(text: str) -> str | None:
    """Why the text cannot stand in a data set folder; None if it can."""
    if not text or text.isspace():
        return "The text is empty"
    return None if is_unicode(text) else "The text holds half a surrogate pair"


def is_unicode(text: str) -> bool:
    """Whether the text can be written as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
