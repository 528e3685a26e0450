"""Files that are whole or absent: atomic folders, manifests of checksums, tensors, stages that resume.

Nothing here pickles. A folder is written under a temporary name, synced, and exchanged with what stands in its place,
so a kill leaves either the old folder or the new one. A manifest holds the SHA-256 of each file; `verify_folder`
checks all of them *before* anything is parsed, because neither JSON, safetensors nor a vector index notices
a flipped byte by itself.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from metaxc.errors import MetaxcError, ModelError

FORMAT = 1
"""Version of the folder format; a reader refuses a newer one."""

MANIFEST = "manifest.json"
Arrays = dict[str, NDArray[Any]]


def digest_of(value: object) -> str:
    """SHA-256 of a JSON-able value: same value, same digest."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def digest_of_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_arrays(path: Path, arrays: Arrays) -> None:
    """Write arrays as one safetensors file; a disk that does not take it is an `OSError`, as for any other file."""
    try:
        save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path.name}: {error}") from error


def load_arrays(path: Path) -> Arrays:
    """Read a safetensors file; a damaged one is a `ModelError`."""
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError) as error:
        raise ModelError("A tensor file cannot be read", got=f"{path.name}: {error}") from error


def save_json(path: Path, value: object) -> None:
    """Write JSON with a trailing newline."""
    path.write_bytes(_rendered(value))


def _rendered(value: object) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def load_json(path: Path) -> Any:
    """Read JSON; a damaged file is a `ModelError`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            "A JSON file cannot be read",
            got=f"{path}: {error}",
            fix="train the model again, or copy it again",
        ) from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is either the old one or the new one, whenever the process is killed; on the disk at return."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    temporary.write_bytes(content)
    sync(temporary)
    temporary.rename(path)
    sync(path.parent)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that becomes `path` when the block ends well, replacing what stood there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                sync(file)
        sync(temporary)
        _put_in_place(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _put_in_place(new: Path, path: Path) -> None:
    """Give a folder its name; what had the name may be left under that of `new`.

    Two names are exchanged at once where the system can do that. Elsewhere a kill between two renames leaves the old
    folder under its name with `.old` behind.
    """
    if not path.exists():
        new.rename(path)
    elif not _exchanged(new, path):
        old = path.with_name(f".{path.name}.{os.getpid()}.old")
        path.rename(old)
        new.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    sync(path.parent)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False where the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_manifest(folder: Path, kind: str) -> str:
    """Write `manifest.json` over every file of the folder, and return the folder's fingerprint."""
    files = {
        file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "sha256": digest_of_file(file)}
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != MANIFEST
    }
    body = {"format": FORMAT, "kind": kind, "files": files}
    fingerprint = digest_of(body)
    save_json(folder / MANIFEST, {**body, "fingerprint": fingerprint})
    return fingerprint


def verify_folder(folder: Path, kind: str) -> str:
    """Check every file against the manifest before any is parsed; return the folder's fingerprint.

    A missing, truncated or changed file, a damaged manifest, a newer format and a folder of another kind are
    each a `ModelError` that names the file.
    """
    again = "train the model again, or copy the folder again"
    if not (folder / MANIFEST).is_file():
        raise ModelError(
            "Not a metaxc folder", got=folder, expected=f"a folder with a {MANIFEST}", fix="check the path"
        )
    manifest = load_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise ModelError("The manifest is damaged", got=folder / MANIFEST, fix=again)
    if manifest["format"] > FORMAT:
        raise ModelError(
            "The folder was written by a newer metaxc",
            got=f"format {manifest['format']}",
            expected=f"format {FORMAT} or older",
            fix="upgrade metaxc",
        )
    body = {name: manifest.get(name) for name in ("format", "kind", "files")}
    fits = digest_of(body) == manifest.get("fingerprint")
    if not fits or (folder / MANIFEST).read_bytes() != _rendered(manifest):
        raise ModelError("The manifest is damaged", got=folder / MANIFEST, fix=again)
    if manifest["kind"] != kind:
        raise ModelError(
            "A folder of another kind", got=manifest["kind"], expected=kind, fix="check the path"
        )
    for name, facts in manifest["files"].items():
        file = folder / name
        if not file.is_file():
            raise ModelError("A file of the folder is missing", got=file, fix=again)
        if file.stat().st_size != facts["bytes"]:
            raise ModelError(
                "A file of the folder has another length",
                got=f"{file}: {file.stat().st_size:,} bytes",
                expected=f"{facts['bytes']:,} bytes",
                fix=again,
            )
        if digest_of_file(file) != facts["sha256"]:
            raise ModelError("A file of the folder was changed", got=file, expected="its SHA-256", fix=again)
    return str(manifest["fingerprint"])


class Stages:
    """Work in named steps, each skipped when its result is already there for the same inputs.

    Each stage writes into a folder of its own. Killed at any moment and started again, the work goes on with
    the first stage that has no whole result.

    Args:
        folder: Where the stages' folders stand.
        report: Called with one line per stage.
    """

    def __init__(self, folder: Path, report: Callable[[str], None] = lambda line: None):
        self.folder = folder
        self.report = report
        self.seconds: dict[str, float] = {}
        self._key = ""

    def run(self, name: str, inputs: Mapping[str, object], build: Callable[[Path], None]) -> Path:
        """The folder of stage `name`, built now or found whole; `inputs` and every earlier stage of this
        run decide whether it still fits."""
        self._key = digest_of([self._key, name, dict(inputs)])
        place = self.folder / name
        try:
            known = load_json(place / "stage.json")
            verify_folder(place, "stage")
            if known["key"] == self._key:
                self.seconds[name] = float(known["seconds"])
                self.report(f"{name}: already there ({self.seconds[name]:.1f} s when it was made)")
                return place
        except MetaxcError:
            pass  # absent, unfinished or damaged: build it
        started = time.perf_counter()
        with whole_folder(place) as temporary:
            build(temporary)
            self.seconds[name] = time.perf_counter() - started
            save_json(temporary / "stage.json", {"key": self._key, "seconds": self.seconds[name]})
            write_manifest(temporary, "stage")
        self.report(f"{name}: {self.seconds[name]:.1f} s")
        return place
