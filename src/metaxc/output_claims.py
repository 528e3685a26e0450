"""Which files and folders an output may replace: those that metaxc has written itself, and nothing else.

A slip of the hand must not destroy data. Every command that writes a folder or a file that a user names asks here
before it begins and again before it replaces anything; `metaxc.artifacts.atomic_folder` does both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from metaxc.errors import ConfigError

MANIFEST = "manifest.json"
CATALOG_MARK = "CURRENT"
"""The file that makes a folder a catalog; no output is written over a catalog or into one."""

DATA_KIND = "data set"
"""The kind of a data set folder, which several commands write."""

BEGINNING = 4096
"""Bytes of a file in which the mark of its kind is looked for."""


def claim_folder(
    path: Path,
    kind: str | None,
    *,
    overwrite: bool = False,
    sources: Iterable[Path] = (),
    in_catalog: bool = False,
) -> Path:
    """The folder that may be written, with symbolic links resolved; anything else is a `ConfigError`.

    A folder may be written if it does not exist or is empty, and with `overwrite` also if it holds nothing but files
    of its own manifest of the same kind. A catalog, a mount point, a source and what contains or is inside a source
    may never be written.

    Args:
        path: The folder that a user named.
        kind: The kind of its manifest; None for a folder without one, which is never replaced.
        overwrite: Whether an earlier result may be replaced.
        sources: Files and folders that the result is computed from.
        in_catalog: Whether a catalog writes it into its own folder.
    """
    folder = claim_place(path, sources, in_catalog)
    if not os.path.lexists(folder):
        return folder
    if not folder.is_dir():
        raise _output_refused("The output is not a folder", folder)
    if os.path.ismount(folder):
        raise _output_refused("The output folder is a mount point, which cannot be replaced", folder)
    if not any(folder.iterdir()):
        return folder
    foreign = find_foreign(folder, kind)
    if foreign is not None:
        raise _output_refused(
            f"The output folder holds data that is not of this kind ({kind}): {foreign}", folder
        )
    if not overwrite:
        raise ConfigError(
            f"The output folder already holds a result ({kind})",
            got=folder,
            expected="a new or empty folder",
            fix="choose another folder, or add --overwrite (in Python: overwrite=True)",
        )
    return folder


def claim_file(path: Path, mark: bytes, *, overwrite: bool = False, sources: Iterable[Path] = ()) -> Path:
    """The file that may be written, with symbolic links resolved; anything else is a `ConfigError`.

    Args:
        path: The file that a user named; its folder must exist.
        mark: Stands near the beginning of every file of this kind; with `overwrite` only such a file is replaced.
        overwrite: Whether an earlier result may be replaced.
        sources: Files and folders that the result is computed from.
    """
    file = claim_place(path, sources)
    if not file.parent.is_dir():
        raise ConfigError(
            "The output cannot be written: its folder does not exist",
            got=file,
            expected="a file in an existing folder",
            fix="create it",
        )
    if not os.path.lexists(file):
        return file
    if not file.is_file():
        raise _output_refused("The output cannot be written: it is not a regular file", file)
    if not overwrite:
        raise ConfigError(
            "The output file already exists",
            got=file,
            expected="a new file",
            fix="choose another name, or add --overwrite",
        )
    with file.open("rb") as opened:
        if mark not in opened.read(BEGINNING):
            raise _output_refused("The output file exists and is of another kind", file)
    if file.name in _listed_files(file.parent):
        raise _output_refused("The output file is part of another result", file)
    return file


def claim_place(path: Path, sources: Iterable[Path], in_catalog: bool = False) -> Path:
    """The path without symbolic links, if it is neither a source, nor around or inside one, nor inside a catalog."""
    place = Path(os.path.realpath(path))
    for source in map(Path, map(os.path.realpath, sources)):
        if place == source:
            raise _output_refused("The output is the source", place)
        if place in source.parents or source in place.parents:
            where = "contains the source" if place in source.parents else "is inside the source"
            raise _output_refused(f"The output {where} {source}", place)
    for folder in () if in_catalog else (place, *place.parents):
        if (folder / CATALOG_MARK).is_file():
            raise _output_refused(f"The output is {'' if folder == place else 'inside '}a catalog", place)
    return place


def _output_refused(what: str, got: Path) -> ConfigError:
    return ConfigError(
        what,
        got=got,
        expected="a new or empty place of its own, or with --overwrite an earlier result of the same kind",
        fix="choose another place; nothing was deleted",
    )


def _listed_files(folder: Path, kind: str | None = None) -> set[str]:
    """The names in a folder's manifest and the manifest itself; empty without a manifest (of that kind)."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        fits = kind is None or manifest["kind"] == kind
        return {MANIFEST, *manifest["files"]} if fits else set()
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def find_foreign(folder: Path, kind: str | None) -> str | None:
    """The name of a file that the folder's manifest of this kind does not list; None where all are listed."""
    listed = set() if kind is None else _listed_files(folder, kind)
    for entry in folder.rglob("*"):
        name = entry.relative_to(folder).as_posix()
        if (entry.is_symlink() or not entry.is_dir()) and name not in listed:
            return name
    return None if listed else "it has no manifest of this kind"
