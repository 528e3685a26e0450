"""Where a report comes from: configuration, hashes, version, commit, date and command."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

import metaxc
from metaxc.data import Dataset
from metaxc.emmett import Emmett

GIT_SECONDS = 10


@dataclass(frozen=True)
class Provenance:
    """Facts in the order they are printed.

    Args:
        facts: Name and value of what identifies the run.
        settings: Name and value of how the model was configured and what was chosen in training.
    """

    facts: Sequence[tuple[str, str]]
    settings: Sequence[tuple[str, str]]


def provenance(model: Emmett, dataset: Dataset, command: str, now: datetime | None = None) -> Provenance:
    """What a reader needs to get the same numbers again.

    Args:
        model, dataset: What was evaluated.
        command: As the user typed it.
        now: The date; the present one when None.
    """
    commit = git_commit(Path(metaxc.__file__).parent)
    facts = [
        ("command", command),
        ("date", (now or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M %Z").strip()),
        ("metaxc", f"{metaxc.__version__}" + (f", commit {commit}" if commit else "")),
        ("data set", f"{dataset.name}: {_counts(dataset)}"),
        ("data hash", dataset.fingerprint),
        ("model fingerprint", model.fingerprint),
        ("encoder fingerprint", model.encoder.fingerprint),
        (
            "model",
            f"{model.encoder.kind} encoder, {model.generator.kind} generator, K = {model.neighbours}, "
            f"{len(model.observed):,} observed items with a classifier",
        ),
    ]
    about = model.about
    parts = {name: about[name] for name in ("config", "constants", "pseudo_novel", "split") if name in about}
    settings = flatten(parts) or flatten({"calibration": model.calibration.model_dump()})
    return Provenance(facts, settings)


def flatten(value: Any, name: str = "") -> list[tuple[str, str]]:
    """(dotted name, value) of every leaf of nested mappings. Of paths only the last part is shown, long lists by
    their length: a report may travel, folders of the machine need not."""
    if isinstance(value, Mapping):
        return [
            leaf
            for key, inner in value.items()
            for leaf in flatten(inner, f"{name}.{key}" if name else str(key))
        ]
    if isinstance(value, list | tuple):
        return [(name, ", ".join(map(_word, value)) if len(value) <= 8 else f"{len(value):,} entries")]
    return [(name, _word(value))]


def git_commit(folder: Path) -> str | None:
    """The commit that the package stands at, None where it is not under version control itself: a package
    installed inside somebody's work tree is not part of it."""
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return None
    return (
        f"{commit} with uncommitted changes" if _git(folder, "status", "--porcelain", "--", ".") else commit
    )


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _word(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return PurePath(text).name if PurePath(text).is_absolute() else text


def _counts(dataset: Dataset) -> str:
    test = 0 if dataset.test is None else len(dataset.test)
    return (
        f"{len(dataset.items):,} items, {len(dataset.novel_rows):,} of them novel; {len(dataset.train):,} training "
        f"queries with {dataset.train.clicks.nnz:,} clicks; {test:,} test queries"
    )
