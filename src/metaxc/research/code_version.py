"""Which code a figure was measured with: the commit, and a digest of the source files that decide the figure.

A commit changes with every edit of a page, so it cannot tell whether a figure is still that of the present code. The
digest of a row covers the source files that decide it and nothing else: a change to a method makes its rows out of
date, a change to the README, the command line or the server does not, nor does one to a comment or a docstring.
"""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import metaxc
from metaxc.artifacts import json_digest
from metaxc.errors import ConfigError

PACKAGE = Path(metaxc.__file__).parent
GIT_TIMEOUT = 10
"""Seconds."""

MEASUREMENT = ("array_checks.py", "arrays.py", "metrics.py", "data", "evaluation", "index")
"""What every figure depends on. The data set itself is named by its fingerprint."""

MODEL = (
    "devices.py",
    "training_loop.py",
    "encoders",
    "classifiers",
    "selectors",
    "generators",
    "emmett",
    "tuning",
    "irene",
)
"""What a trained model depends on."""

BASELINES = ("research/baselines",)

NOT_METHOD = (
    "data/sources/",
    *(f"emmett/{name}.py" for name in ("query_tower_export", "query_tower_modules", "token_bag_module")),
)
"""Inside the folders above, but without influence on a figure: how public data sets are downloaded, and how a query
tower is written for other programs."""

MODEL_SOURCES = (*MEASUREMENT, *MODEL)
METHOD_SOURCES = (*MODEL_SOURCES, *BASELINES)


def source_digest(parts: Sequence[str] = METHOD_SOURCES) -> str:
    """SHA-256 of the names and contents of the running code's source files.

    Args:
        parts: Files and folders of the package, such as "metrics.py" and "irene"; a folder stands for all files in it.
    """
    return digest_sources(_running_files(), parts)


def digest_sources(files: Mapping[str, str], parts: Sequence[str]) -> str:
    """SHA-256 of the files that belong to `parts`.

    Args:
        files: The SHA-256 of each file by its path, as `hash_sources` returns them.
        parts: Files and folders; one without any file is a `ConfigError`, so that a renamed package is noticed.
    """
    chosen: dict[str, str] = {}
    for part in parts:
        found = {name: value for name, value in files.items() if name == part or name.startswith(f"{part}/")}
        if not found:
            raise ConfigError(
                "A part of the source code does not exist",
                got=part,
                expected="a Python file or a folder of the package",
                fix="correct metaxc.research.code_version, or the row's `sources`",
            )
        chosen |= found
    counted = [name for name in sorted(chosen) if not name.startswith(NOT_METHOD)]
    return json_digest([[name, chosen[name]] for name in counted])


def hash_sources(package: Path) -> dict[str, str]:
    """The SHA-256 of what every Python file below a folder does, by its path there: line endings, comments, docstrings
    and blank lines do not count."""
    return {
        file.relative_to(package).as_posix(): sha256(
            _without_words(file.read_text(encoding="utf-8")).encode()
        ).hexdigest()
        for file in sorted(package.rglob("*.py"))
    }


def _without_words(source: str) -> str:
    """The lines of a module without comments, docstrings and blank lines."""
    lines = source.split("\n")  # as tokenize and ast count them
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            for row in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[row] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


@cache
def _running_files() -> dict[str, str]:
    """Read once: a file that is edited during a long run is not the code that runs."""
    return hash_sources(PACKAGE)


@cache
def running_commit() -> str | None:
    """The commit of the running code, None where it is not under version control. Read once, like the files."""
    return git_commit(PACKAGE)


def git_commit(folder: Path) -> str | None:
    """The commit of the package, None where the package itself is not under version control: one that is installed
    inside somebody's work tree is not part of it."""
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return None
    changed = _git(folder, "status", "--porcelain", "--", ".")
    return f"{commit} with uncommitted changes" if changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=GIT_TIMEOUT)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
