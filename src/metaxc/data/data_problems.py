"""A problem in a data set file, and how it is reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from metaxc.errors import DataError

Severity = Literal["error", "warning", "note"]

LEFT_OUT = "left out"
"""The remedy for a line that cannot be used at all."""


@dataclass(frozen=True)
class Problem:
    """A problem with one line of a file, or with the whole file.

    Args:
        severity: "error" if the data cannot be read, "warning" if metrics computed from it would be misleading,
            "note" if it may be intended.
        kind: A short name that all problems of this kind share.
        file: File name.
        line: Line number from 1 (row number in a Parquet file); None if the problem concerns the whole file.
        message: What is wrong, in one sentence.
        got: What was found.
        expected: What was expected.
        remedy: What `metaxc data check --fix` and `metaxc data import` do with the line: leave it out, or how they read
            it; None if they can do nothing.
    """

    severity: Severity
    kind: str
    file: str
    line: int | None
    message: str
    got: str | None = None
    expected: str | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}, line {self.line}"
        detail = [f"{name} {text}" for name, text in (("got", self.got), ("expected", self.expected)) if text]
        return f"{place}: {self.message}" + (f" ({'; '.join(detail)})" if detail else "")


Reporter = Callable[[Problem], None]
"""Receives each problem that a reader finds."""


def file_error(
    path: Path,
    line: int | None,
    kind: str,
    message: str,
    got: object = None,
    expected: str | None = None,
    remedy: str | None = LEFT_OUT,
) -> Problem:
    """A problem that prevents the file from being read; `got` is shortened to a readable length. A problem of the whole
    file (`line` is None) has no remedy."""
    shown = None if got is None else shorten(got)
    return Problem("error", kind, path.name, line, message, shown, expected, None if line is None else remedy)


def raise_first(folder: Path, fix: str) -> Reporter:
    """A reporter that raises the first problem as a `DataError`.

    Args:
        folder: The folder of the files that are read, for the message.
        fix: What the user should do.
    """

    def report(problem: Problem) -> NoReturn:
        place = str(folder / problem.file if problem.file else folder)
        if problem.line is not None:
            place += f", line {problem.line}"
        raise DataError(f"{place}: {problem.message}", got=problem.got, expected=problem.expected, fix=fix)

    return report


def shorten(value: object, longest: int = 80) -> str:
    """The representation of a value for an error message, at most `longest` characters."""
    text = repr(value[: longest * 2]) if isinstance(value, str | bytes) else repr(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"
