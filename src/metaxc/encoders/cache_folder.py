"""Folders of the cache: private to the user, because what is in them is used without being computed again.

Checksums detect damage. Whoever can write to the folder can write checksums too, so nothing is read from a folder to
which others can write, or that belongs to somebody else.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from metaxc.errors import ModelError


def open_cache_folder(root: Path, *parts: str) -> Path:
    """The folder `root`/`parts`, created where it does not exist, for this user alone.

    A folder on the way that others can write to, or that belongs to another user, is a `ModelError`. Below a folder
    that others cannot enter nothing needs to be checked.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    folders = [root.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
    private = False
    for folder in folders:
        folder.mkdir(mode=0o700, exist_ok=True)
        private = private or _is_private(folder)
    return folders[-1]


def _is_private(folder: Path) -> bool:
    """Whether others cannot enter the folder; raises where they could have written to it."""
    if not hasattr(os, "getuid"):  # Windows, where a user's folders are private
        return True
    facts = folder.stat()
    if facts.st_uid not in (os.getuid(), 0) or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ModelError(
            "Other users can change the cache",
            got=f"{folder}: owner {facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):o}",
            expected=f"a folder of user {os.getuid()} that nobody else can write to",
            fix="give a cache folder of your own (--cache, or METAXC_CACHE), or, if nobody else has used this one, "
            f"run: chmod -R go-w {folder}",
        )
    return not facts.st_mode & (stat.S_IXGRP | stat.S_IXOTH)
