"""Text files line by line, plain or gzip, with errors that name the file and the line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from metaxc.errors import DataError


def find(folder: Path, *names: str) -> Path | None:
    """The first of the names that is a file in `folder`, as it is or with .gz."""
    for name in names:
        for candidate in (folder / name, folder / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    return None


def need(folder: Path, *names: str) -> Path:
    """The first of the names that is a file in `folder`; none of them is an error."""
    found = find(folder, *names)
    if found is None:
        raise DataError(
            f"A file is missing in {folder}",
            got=", ".join(sorted(p.name for p in folder.iterdir())[:20])
            if folder.is_dir()
            else "no such folder",
            expected=" or ".join(names) + ", plain or with .gz",
            fix="check the path, or download the missing part of the data set",
        )
    return found


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """Lines without their ends; only a line feed ends a line, whatever else Unicode counts as one."""
    try:
        with path.open("rb") as raw:
            stream = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            for number, line in enumerate(stream, 1):
                try:
                    yield line.decode(encoding).rstrip("\r\n")
                except UnicodeDecodeError as error:
                    raise DataError(
                        f"{path}, line {number}, is not {encoding}",
                        got=error.reason,
                        expected=f"{encoding} text",
                        fix="pass the file's encoding, or convert it with iconv",
                    ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read", got=error, expected="a complete text file", fix="download it again"
        ) from error


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and JSON object of every line that is not blank."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(
                f"{path}, line {number}, is not JSON",
                got=f"{line[:80]!r}: {error}",
                expected="one object per line",
            ) from error
        if not isinstance(record, dict):
            raise DataError(
                f"{path}, line {number}, is not a JSON object", got=line[:80], expected='{"key": value, …}'
            )
        yield number, record


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines, each ended by a line feed; a name ending in .gz is compressed (same input, same bytes)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed:
                packed.writelines(f"{line}\n".encode() for line in lines)
        else:
            raw.writelines(f"{line}\n".encode() for line in lines)


def write_json_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object per line, in plain UTF-8."""
    write_lines(path, (json.dumps(record, ensure_ascii=False) for record in records))
