"""Folders that somebody has changed: every file in every way, with a manifest that fits again.

A manifest detects damage. Whoever changes a file can write the manifest anew, so a reader must also notice what cannot
be right by itself: missing and additional parts, other shapes and types, row numbers out of range, NaN.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from metaxc.artifacts import MANIFEST, json_digest, save_json, write_manifest

Change = Callable[[Path], None]
"""Changes one file of a folder."""


def copies(folder: Path, kind: str, out: Path) -> Iterator[tuple[str, Path]]:
    """What was done, and a copy of `folder` to which it was done; the same place each time."""
    for file in sorted(file for file in folder.rglob("*") if file.is_file() and file.name != MANIFEST):
        for name, change in changes(file):
            place = file.relative_to(folder)
            yield f"{place}: {name}", _changed(folder, out, kind, lambda copy, p=place, c=change: c(copy / p))
    yield "a file more", _changed(folder, out, kind, lambda copy: None, after=_add_file)
    for name, listed in (("no files", {}), ("a list", []), ("a path outside", {"../x": {}}), ("null", None)):
        change = _manifest_change(kind, listed)
        yield f"manifest of {name}", _changed(folder, out, kind, lambda copy: None, after=change)


def _changed(folder: Path, out: Path, kind: str, change: Change, after: Change = lambda copy: None) -> Path:
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder, out)
    change(out)
    write_manifest(out, kind)
    after(out)
    return out


def _add_file(folder: Path) -> None:
    (folder / "more.safetensors").write_bytes(b"x")


def _manifest_change(kind: str, listed: object) -> Change:
    def change(folder: Path) -> None:
        body = {"format": 1, "kind": kind, "files": listed}
        save_json(folder / MANIFEST, {**body, "fingerprint": json_digest(body)})

    return change


def changes(file: Path) -> Iterator[tuple[str, Change]]:
    """All changes of one file, by name."""
    content = file.read_bytes()
    yield "gone", Path.unlink
    yield "empty", lambda file: file.write_bytes(b"") and None
    yield "half", lambda file: file.write_bytes(content[: len(content) // 2]) and None
    yield "zeros", lambda file: file.write_bytes(bytes(len(content))) and None
    if file.suffix == ".safetensors":
        yield from _array_changes(file)
    elif file.suffix == ".jsonl":
        yield from _line_changes(content)
    elif file.suffix == ".json" and file.name != "tokenizer.json":
        yield from _json_changes(json.loads(content))


def _array_changes(file: Path) -> Iterator[tuple[str, Change]]:
    arrays = load_file(file)

    def written(changed: dict[str, Any]) -> Change:
        return lambda file: save_file({k: np.ascontiguousarray(v) for k, v in changed.items()}, file)

    def headed(header: dict[str, Any]) -> Change:
        text = json.dumps(header).encode()
        return lambda file: file.write_bytes(len(text).to_bytes(8, "little") + text + b"x" * 64) and None

    yield "no arrays", written({})
    huge = {"dtype": "F32", "shape": [1 << 40, 1 << 20], "data_offsets": [0, 1 << 62]}
    yield "huge counts", headed(dict.fromkeys(arrays, huge))
    yield (
        "a type that NumPy lacks",
        headed({name: {"dtype": "BF16", "shape": [32], "data_offsets": [0, 64]} for name in arrays}),
    )
    for name, array in arrays.items():
        yield f"{name} gone", written({other: value for other, value in arrays.items() if other != name})
        forms: dict[str, Any] = {
            "flat": array.reshape(-1),
            "an axis more": array[None],
            "one row less": array[:-1] if array.ndim else array.reshape(1),
            "one row more": np.concatenate([array, array[-1:]]) if array.size and array.ndim else array[None],
            "no rows": array[:0] if array.ndim else array[None],
            "as texts": np.frombuffer(b"some text", np.uint8),
            "as bool": array.astype(bool),
        }
        if array.ndim == 2:
            forms |= {"turned": array.T, "one column less": array[:, :-1]}
        if array.dtype.kind == "f":
            nan, infinite = array.copy(), array.copy()
            nan.reshape(-1)[-1:], infinite.reshape(-1)[:1] = np.nan, np.inf
            forms |= {"NaN": nan, "infinity": infinite, "float64": array.astype(np.float64)}
        else:
            forms |= {"negative": -1 - array, "beyond": array + 10**6, "float64": array.astype(np.float64)}
        for form, changed in forms.items():
            if (
                changed.shape != array.shape
                or changed.dtype != array.dtype
                or form in ("NaN", "infinity")
                or not np.array_equal(changed, array)
            ):
                yield f"{name} {form}", written({**arrays, name: changed})


def _line_changes(content: bytes) -> Iterator[tuple[str, Change]]:
    lines = content.splitlines(keepends=True)

    def written(*changed: bytes) -> Change:
        return lambda file: file.write_bytes(b"".join(changed)) and None

    yield "one line less", written(*lines[:-1])
    yield "one line twice", written(*lines, lines[-1])
    yield "one line more", written(*lines, b'{"id": "one more", "text": "x", "novel": true}\n')
    wrong = (
        b"[]\n",
        b"{\n",
        b"null\n",
        b'{"id": 7, "text": "x"}\n',
        b'{"id": "x"}\n',
        b'{"id": "x", "text": null}\n',
    )
    for line in (*wrong, b"\xff\n", b"[" * 100_000 + b"\n", b"x" * (5 << 20)):
        yield f"a line {line[:30]!r}", written(*lines[:-1], line)


def _json_changes(value: Any) -> Iterator[tuple[str, Change]]:
    def written(changed: Any) -> Change:
        return lambda file: file.write_text(json.dumps(changed), encoding="utf-8") and None

    for name, text in (
        ("no JSON", "{"),
        ("deep", "[" * 100_000),
        ("a list", "[]"),
        ("null", "null"),
        ("7", "7"),
    ):
        yield name, lambda file, text=text: file.write_text(text) and None
    if not isinstance(value, dict):
        return
    for path, found in _leaves(value):
        yield f"{'.'.join(path)} gone", written(_replaced(value, path))
        for wrong in (None, [], {}, "text", -1, 10**30, float("nan"), float("inf"), True, [[1]]):
            if type(wrong) is not type(found) or wrong != found:
                yield f"{'.'.join(path)} = {wrong!r}", written(_replaced(value, path, wrong))


SAFE = ("about", "losses")
"""What only people read."""


def _leaves(value: dict[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in value.items():
        if name not in SAFE:
            yield (*before, name), inner
            if isinstance(inner, dict):
                yield from _leaves(inner, (*before, name))


_GONE = object()


def _replaced(value: dict[str, Any], path: tuple[str, ...], new: Any = _GONE) -> dict[str, Any]:
    copy = dict(value)
    if len(path) > 1:
        copy[path[0]] = _replaced(copy[path[0]], path[1:], new)
    elif new is _GONE:
        del copy[path[0]]
    else:
        copy[path[0]] = new
    return copy
