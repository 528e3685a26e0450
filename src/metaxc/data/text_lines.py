"""Lines of text files, plain or compressed: read with their numbers, written reproducibly.

A reader passes each line that it cannot use to `report` and skips it, or reads it as it was probably meant and says so
(`Problem.remedy`). The caller decides whether a problem is raised (`raise_first`, for `read_folder` and the
converters) or collected (`check_folder`), so the two never disagree. Only a line feed ends a line, because a text may
contain other characters that Unicode classifies as line breaks.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, cast

from metaxc.data.data_problems import Reporter, file_error
from metaxc.data.input_rules import BYTE_ORDER_MARK

MAX_LINE = 4 << 20
"""Bytes of a line. The longest line that the rules for texts allow is far shorter; in other formats a line may be a
whole document or a long list of clicks. A megabyte of gzip may contain a line of a gigabyte, so a longer line is
refused before it is in memory."""

GZIP_MAGIC = b"\x1f\x8b"
AS_WINDOWS = "read as Windows-1252 (Latin-1)"
"""What is done with text that is not UTF-8: most such files come from older spreadsheets."""


def read_lines(
    path: Path,
    report: Reporter,
    *,
    encoding: str = "utf-8",
    may_be_empty: bool = True,
    stream: IO[bytes] | None = None,
) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line, blank ones included, without line ends; plain or `.gz`.

    Args:
        path: The file.
        report: Receives each problem.
        encoding: Of the text.
        may_be_empty: Whether a file without text is allowed.
        stream: The open file, plain or compressed, which stays open; `path` then only names it in problems.
    """
    empty = True
    try:
        with _open(path) if stream is None else nullcontext(_decompress(stream)) as file:
            for number, raw in enumerate(limited_lines(file), 1):
                try:
                    line = raw.decode(encoding)
                except UnicodeDecodeError as problem:
                    name = encoding.upper()
                    message = f"The line is not valid {name}: byte {problem.start + 1} cannot be decoded"
                    kind, expected = f"invalid {name}", f"{name} text"
                    report(file_error(path, number, kind, message, raw, expected, AS_WINDOWS))
                    line = decode_windows(raw)
                line = line.rstrip("\r\n")
                if number == 1:
                    line = line.removeprefix(BYTE_ORDER_MARK)
                empty = empty and not line
                yield number, line
    except (OSError, EOFError, zlib.error) as problem:
        report(file_error(path, None, "unreadable file", f"The file cannot be read: {problem}"))
        return
    if empty and not may_be_empty:
        report(file_error(path, None, "empty file", "The file is empty", expected="at least one line"))


def limited_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of an open file, with their line ends; one of more than `MAX_LINE` bytes is an `OSError`."""
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), 1):
        if len(line) > MAX_LINE:
            raise OSError(f"line {number} has more than {MAX_LINE:,} bytes")
        yield line


def decode_windows(raw: bytes) -> str:
    """Bytes that are not UTF-8 as text: Windows-1252, and Latin-1 for the five bytes that it does not define."""
    try:
        return raw.decode("cp1252")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return io.BufferedReader(cast("io.RawIOBase", gzip.open(path, "rb")), 1 << 20)
    return path.open("rb")


def _decompress(stream: IO[bytes]) -> IO[bytes]:
    """The stream, decompressed where its first bytes are those of gzip."""
    buffered = stream if hasattr(stream, "peek") else io.BufferedReader(cast("io.RawIOBase", stream))
    if buffered.peek(2)[:2] == GZIP_MAGIC:
        return io.BufferedReader(cast("io.RawIOBase", gzip.open(buffered, "rb")), 1 << 20)
    return buffered


def read_json_lines(
    path: Path,
    report: Reporter,
    *,
    expected: str = "one JSON object per line",
    may_be_empty: bool = True,
    stream: IO[bytes] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and JSON object of each line that is not blank; `stream` as of `read_lines`."""
    for number, line in read_lines(path, report, may_be_empty=may_be_empty, stream=stream):
        if not line or line.isspace():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as problem:
            message = f"The line is not JSON: {problem}"
            report(file_error(path, number, "invalid JSON", message, line, expected))
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            message = "The line is not a JSON object"
            report(file_error(path, number, "invalid JSON", message, line, expected))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines, each ended by a line feed; a name that ends in .gz is compressed (same input, same bytes)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
                packed.writelines(f"{line}\n".encode() for line in lines)
        else:
            file.writelines(f"{line}\n".encode() for line in lines)


def json_lines(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Each record as one line of JSON in plain UTF-8."""
    return (json.dumps(record, ensure_ascii=False) for record in records)
