"""Atomic files and folders, manifests of checksums, tensor files, and stages that resume.

Nothing here pickles. A file or folder is written under a temporary name, synced, and then exchanged with whatever has
its name, so a killed process leaves either the old version or the new one. A manifest holds the SHA-256 of each file;
`verify_folder` checks all of them *before* anything is parsed, because JSON, safetensors and vector indexes do not
notice a flipped byte.
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
from filelock import FileLock
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from metaxc.array_checks import AGAIN, all_finite
from metaxc.errors import MetaxcError, ModelError

FORMAT = 1
"""Version of the folder format; a reader refuses a newer one."""

MANIFEST = "manifest.json"
Arrays = dict[str, NDArray[Any]]


def json_digest(value: object) -> str:
    """SHA-256 of a JSON-able value: same value, same digest."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_arrays(path: Path, arrays: Arrays) -> None:
    """Write arrays as one safetensors file; a full or failing disk is an `OSError`, as for any other file."""
    try:
        save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path.name}: {error}") from error


def load_arrays(path: Path, *, finite: bool = True) -> Arrays:
    """Read a safetensors file; a damaged one, and one with NaN or infinity, is a `ModelError`.

    Args:
        path: The file.
        finite: Whether to refuse NaN and infinity.
    """
    try:
        arrays = dict(load_file(path))
    # A type that NumPy does not have is a KeyError or an AttributeError.
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError("A tensor file cannot be read", got=f"{path.name}: {error!r}", fix=AGAIN) from error
    for name, array in arrays.items() if finite else ():
        if not all_finite(array):
            raise ModelError(
                "A tensor file contains NaN or infinity",
                got=f"{path.name}: {name}",
                expected="finite numbers",
                fix=AGAIN,
            )
    return arrays


def save_json(path: Path, value: object) -> None:
    """Write JSON with a trailing newline."""
    path.write_bytes(_render(value))


def _render(value: object) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def load_json(path: Path) -> Any:
    """Read JSON; a damaged file is a `ModelError`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            "A JSON file cannot be read",
            got=f"{path}: {error}",
            fix="train the model again, or copy it again",
        ) from error


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A temporary path whose file becomes `path` when the block succeeds; it is on disk afterwards."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part{path.suffix}")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content; a killed process leaves the old content or the new."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def atomic_folder(path: Path, kind: str | None = None) -> Iterator[Path]:
    """A temporary folder that becomes `path` when the block succeeds, replacing what was there.

    Args:
        path: The folder to write.
        kind: Writes a manifest of this kind over the folder's files; None writes no manifest.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        if kind is not None:
            write_manifest(temporary, kind)
        for file in temporary.rglob("*"):
            if file.is_file():
                sync(file)
        sync(temporary)
        _replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def reuse_or_build(folder: Path, kind: str, build: Callable[[Path], None]) -> tuple[Path, bool]:
    """The folder if its manifest verifies, else built now; two processes do not build it twice.

    Args:
        folder: Where the result is or will be.
        kind: The kind in its manifest.
        build: Fills the folder that it is given.

    Returns:
        The folder, and whether it was built by this call.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        try:
            verify_folder(folder, kind)
            return folder, False
        except MetaxcError:  # absent, unfinished or damaged
            with atomic_folder(folder, kind) as new:
                build(new)
            return folder, True


def _replace(new: Path, path: Path) -> None:
    """Give the folder `new` the name `path`; what had that name may be left under the name of `new`.

    The two names are exchanged in one step where the system supports it. Elsewhere a kill between two renames leaves
    the old folder under its name with `.old` appended.
    """
    if not path.exists():
        new.rename(path)
    elif not _exchange_names(new, path):
        old = path.with_name(f".{path.name}.{os.getpid()}.old")
        path.rename(old)
        new.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    sync(path.parent)


def _exchange_names(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False where the system does not support it."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    current_folder, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(
        renameat2(current_folder, os.fsencode(one), current_folder, os.fsencode(other), exchange) == 0
    )


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_manifest(folder: Path, kind: str) -> str:
    """Write `manifest.json` over every file of the folder, and return the folder's fingerprint."""
    files = {
        file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "sha256": file_digest(file)}
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != MANIFEST
    }
    body = {"format": FORMAT, "kind": kind, "files": files}
    fingerprint = json_digest(body)
    save_json(folder / MANIFEST, {**body, "fingerprint": fingerprint})
    return fingerprint


def verify_folder(folder: Path, kind: str) -> str:
    """Check every file against the manifest before any is parsed; return the folder's fingerprint.

    A missing, additional, truncated or changed file, a damaged manifest, a newer format and a folder of another kind
    are each reported as a `ModelError` that names the file. Hidden files (`.DS_Store`) are never read and may be there.
    A manifest detects damage, not tampering: who can change a file can change the manifest too.
    """
    if not (folder / MANIFEST).is_file():
        raise ModelError(
            "Not a metaxc folder", got=folder, expected=f"a folder with a {MANIFEST}", fix="check the path"
        )
    manifest = load_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise ModelError("The manifest is damaged", got=folder / MANIFEST, fix=AGAIN)
    if manifest["format"] > FORMAT:
        raise ModelError(
            "The folder was written by a newer metaxc",
            got=f"format {manifest['format']}",
            expected=f"format {FORMAT} or older",
            fix="upgrade metaxc",
        )
    body = {name: manifest.get(name) for name in ("format", "kind", "files")}
    fits = json_digest(body) == manifest.get("fingerprint")
    if not fits or (folder / MANIFEST).read_bytes() != _render(manifest):
        raise ModelError("The manifest is damaged", got=folder / MANIFEST, fix=AGAIN)
    if manifest["kind"] != kind:
        raise ModelError(
            "A folder of another kind", got=manifest["kind"], expected=kind, fix="check the path"
        )
    _check_listed(folder, manifest["files"])
    for name, facts in manifest["files"].items():
        file = folder / name
        if not file.is_file():
            raise ModelError("A file of the folder is missing", got=file, fix=AGAIN)
        if file.stat().st_size != facts["bytes"]:
            raise ModelError(
                "A file of the folder has another length",
                got=f"{file}: {file.stat().st_size:,} bytes",
                expected=f"{facts['bytes']:,} bytes",
                fix=AGAIN,
            )
        if file_digest(file) != facts["sha256"]:
            raise ModelError("A file of the folder was changed", got=file, expected="its SHA-256", fix=AGAIN)
    return str(manifest["fingerprint"])


def _check_listed(folder: Path, files: object) -> None:
    """Raise unless a manifest lists at least one file, all of them inside the folder, and every file of the folder."""
    listed = files if isinstance(files, dict) else {}
    for name, facts in listed.items():
        known = isinstance(facts, dict) and isinstance(facts.get("bytes"), int)
        if not known or not isinstance(facts.get("sha256"), str) or {"", ".", ".."} & set(name.split("/")):
            raise ModelError("The manifest is damaged", got=f"{folder / MANIFEST}: {name!r}", fix=AGAIN)
    if not listed:
        raise ModelError(
            "The manifest lists no files", got=folder / MANIFEST, expected="at least one file", fix=AGAIN
        )
    for file in folder.rglob("*"):
        place = file.relative_to(folder)
        hidden = any(part.startswith(".") for part in place.parts)
        if file.is_file() and file.name != MANIFEST and not hidden and place.as_posix() not in listed:
            raise ModelError(
                "The folder contains a file that is not in its manifest",
                got=file,
                expected="only the files that were written with it",
                fix="move the file elsewhere",
            )


class Stages:
    """Work in named steps; a step is skipped when its result is already there for the same inputs.

    Each stage writes a folder of its own. A run that was killed and is started again continues with the first stage
    that has no complete result.

    Args:
        folder: Holds one folder per stage.
        report: Called with one line per stage.
    """

    def __init__(self, folder: Path, report: Callable[[str], None] = lambda line: None):
        self.folder = folder
        self.report = report
        self.seconds: dict[str, float] = {}
        self._key = ""

    def run(self, name: str, inputs: Mapping[str, object], build: Callable[[Path], None]) -> Path:
        """The folder of stage `name`, built now or reused; `inputs` and all earlier stages of this run decide
        whether an existing one is reused."""
        self._key = json_digest([self._key, name, dict(inputs)])
        folder = self.folder / name
        started = time.perf_counter()

        def build_and_time(out: Path) -> None:
            build(out)
            save_json(out / "stage.json", {"key": self._key, "seconds": time.perf_counter() - started})

        try:
            if load_json(folder / "stage.json")["key"] != self._key:
                shutil.rmtree(folder)
        except (MetaxcError, KeyError, TypeError):
            pass  # absent or damaged, which reuse_or_build notices
        _, built = reuse_or_build(folder, "stage", build_and_time)
        self.seconds[name] = float(load_json(folder / "stage.json")["seconds"])
        seconds = f"{self.seconds[name]:.1f} s"
        self.report(f"{name}: {seconds}" if built else f"{name}: reused ({seconds} when it was built)")
        return folder
