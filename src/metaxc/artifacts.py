"""Atomic files and folders, which of them may be replaced, manifests of checksums, tensor files, stages that resume.

Nothing here pickles. A file or folder is written under a temporary name, synced, and then exchanged with whatever has
its name, so a killed process or a power cut leaves either the old version or the new one. Data that metaxc has not
written is never replaced (`metaxc.output_claims`). A manifest holds the SHA-256 of each file;
`verify_folder` checks all of them *before* anything is parsed, because JSON, safetensors and vector indexes do not
notice a flipped byte.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import shutil
import time
from binascii import hexlify
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from metaxc.array_checks import AGAIN, all_finite
from metaxc.errors import MetaxcError, ModelError
from metaxc.output_claims import MANIFEST as MANIFEST
from metaxc.output_claims import claim_folder, find_foreign

FORMAT = 1
"""Version of the folder format; a reader refuses a newer one."""

DIGEST_BLOCK = 1 << 20
"""Bytes of an array that `array_digest` writes out at once."""

STAGE_KIND = "stage"
LEFTOVER = re.compile(r"\..+\.(lock|\d+-[0-9a-f]{8}\.part)")
"""Names of the lock of `reuse_or_build`, and of what a killed process leaves of `atomic_folder`."""

Arrays = dict[str, NDArray[Any]]


def json_digest(value: object) -> str:
    """SHA-256 of a JSON-able value: same value, same digest."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def array_digest(array: NDArray[Any]) -> str:
    """SHA-256 of an array's bytes in hexadecimal, as a JSON string: `json_digest(array.tobytes().hex())`, without
    building a string of twice the array's size and looking for characters to escape in it."""
    digest = hashlib.sha256(b'"')
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for start in range(0, len(flat), DIGEST_BLOCK):
        digest.update(hexlify(flat[start : start + DIGEST_BLOCK].data))
    digest.update(b'"')
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_arrays(path: Path, arrays: Arrays) -> None:
    """Write arrays as one safetensors file, readable for whom the umask permits it; a full or failing disk is an
    `OSError`, as for any other file."""
    path.touch()
    mode = path.stat().st_mode  # the library makes files that only their owner can read
    try:
        save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path.name}: {error}") from error
    path.chmod(mode)


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


def discard_results(folder: Path, kind: str) -> None:
    """Remove the folders of this kind in `folder`, and `folder` itself if nothing else is in it."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir() and not entry.is_symlink():
            if LEFTOVER.fullmatch(entry.name) or find_foreign(entry, kind) is None:
                shutil.rmtree(entry, ignore_errors=True)
        elif LEFTOVER.fullmatch(entry.name):
            entry.unlink()
    with suppress(OSError):
        folder.rmdir()


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents; their names are on disk afterwards."""
    path = Path(os.path.abspath(path))
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync(folder.parent)
    if not missing:
        with suppress(PermissionError):  # somebody else's folder around an existing one need not be readable
            sync(path.parent)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A temporary path whose file becomes `path` when the block succeeds; it is on disk afterwards.

    A symbolic link stays: the file that it names is replaced.
    """
    path = Path(os.path.realpath(path))
    # Processes of several machines that share a file system may have the same number.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{token_hex(4)}.part{path.suffix}")
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
def atomic_folder(
    path: Path,
    kind: str | None = None,
    *,
    overwrite: bool = False,
    sources: Iterable[Path] = (),
    in_catalog: bool = False,
) -> Iterator[Path]:
    """A temporary folder that becomes `path` when the block succeeds; it is on disk afterwards.

    Args:
        path: The folder to write, if `claim_folder` permits it.
        kind: Writes a manifest of this kind over the folder's files; None writes no manifest.
        overwrite: Whether an earlier result of the same kind is replaced.
        sources: What the result is computed from.
        in_catalog: Whether a catalog writes it into its own folder.
    """
    claim = partial(
        claim_folder, path, kind, overwrite=overwrite, sources=tuple(sources), in_catalog=in_catalog
    )
    path = claim()
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{token_hex(4)}.part")
    temporary.mkdir()
    try:
        yield temporary
        if kind is not None:
            write_manifest(temporary, kind)
        for entry in temporary.rglob("*"):
            if not entry.is_symlink():
                sync(entry)
        sync(temporary)
        claim()  # again: much may have happened meanwhile
        _replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def reuse_or_build(folder: Path, kind: str, build: Callable[[Path], None]) -> tuple[Path, bool]:
    """The folder if its manifest verifies, else built now; two processes do not build it twice.

    A folder of that name that is not of this kind is renamed, not removed.

    Args:
        folder: Where the result is or will be.
        kind: The kind in its manifest.
        build: Fills the folder that it is given.

    Returns:
        The folder, and whether it was built by this call.
    """
    make_folder(folder.parent)
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        try:
            verify_folder(folder, kind)
            return folder, False
        except MetaxcError:  # absent or damaged
            if folder.is_dir() and any(folder.iterdir()) and find_foreign(folder, kind) is not None:
                folder.rename(folder.with_name(f"{folder.name}.damaged-{token_hex(4)}"))
            with atomic_folder(folder, kind, overwrite=True) as new:
                build(new)
            return folder, True


def _replace(new: Path, path: Path) -> None:
    """Give the folder `new` the name `path`; what had that name may be left under the name of `new`.

    The two names are exchanged in one step where the system supports it. Elsewhere a kill between two renames leaves
    the old folder under its name with `.old` appended.
    """
    if not path.exists() or not any(path.iterdir()):
        new.rename(path)  # fails if somebody has put something into an empty folder meanwhile
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
            other = load_json(folder / "stage.json")["key"] != self._key
            if other and find_foreign(folder, STAGE_KIND) is None:
                shutil.rmtree(folder)
        except (MetaxcError, KeyError, TypeError):
            pass  # absent or damaged, which reuse_or_build notices
        _, built = reuse_or_build(folder, STAGE_KIND, build_and_time)
        self.seconds[name] = float(load_json(folder / "stage.json")["seconds"])
        seconds = f"{self.seconds[name]:.1f} s"
        self.report(f"{name}: {seconds}" if built else f"{name}: reused ({seconds} when it was built)")
        return folder
