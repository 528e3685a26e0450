"""Commit subjects and the files that they touched ("commits"), from any git clone, with times.

A query is the first line of a commit message without its ticket number, its items are the source files that the commit
touched, and the time of the click is that of the commit. The text of a file is its path, split into words; it was first
seen in the commit that added it. A file that was renamed stays the same item, under its latest path.

Merges, version bumps and clean-ups are left out, and so are commits of many files, which say nothing about any of them.
Files in fewer than two or in more than 2 % of the commits (and more than 20) are dropped.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from metaxc.data.dataset import Dataset
from metaxc.data.input_rules import MOST_ID
from metaxc.data.sources.assembly import MIN_QUERIES, one_line
from metaxc.errors import DataError

MOST_FILES = 20
"""Files of a commit; larger ones are sweeping changes."""

LARGEST_SHARE, LARGEST_COUNT = 0.02, 20
"""Files in a larger share of the commits (a changelog, a version file) carry no information; in a small repository,
those in more than this many commits."""

SHORTEST_SUBJECT = 10
"""Characters of a subject."""

_SUFFIXES = """
.adoc .c .cc .clj .cpp .cs .css .cxx .dart .ex .exs .go .groovy .h .hpp .hs .html .java .jl .js .jsx .kt .lua .m .md .ml
.mm .php .pl .proto .ps1 .py .pyx .r .rb .rs .rst .scala .scss .sh .sql .swift .tex .ts .tsx .vue
"""
SUFFIXES = frozenset(_SUFFIXES.split())
"""Names of files that people write end in one of these."""

_TICKET = re.compile(r"^\s*(\[?[A-Z][A-Z0-9]+-\d+\]?|\[?#\d+\]?)\s*[:,\-]?\s*|\s*\(#\d+\)\s*$")
_NOISE = re.compile(
    r"^(merge|revert|bump|upgrade .* to [\d.v]+|update .* to [\d.v]+|release|prepare (for )?(next|release)|regen|"
    r"\[maven-release|version|auto-generated|initial (commit|import)|polish(ed)?\.?$|"
    r"fix(ed)? (typo|cs|checkstyle|lint))",
    re.IGNORECASE,
)
_SEPARATORS = re.compile(r"[\W_]+")
_BORDERS = re.compile(
    r"(?<=[a-zà-öø-ÿ])(?=[A-ZÀ-ÖØ-Þ])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d])(?=\d)|(?<=\d)(?=[^\W\d])"
)
_BEGIN, _BETWEEN = "\x01", "\x1f"


@dataclass
class _File:
    """A file through its renames."""

    path: str
    first_seen: int
    commits: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Commit:
    """A commit.

    Args:
        hash: Its first twelve digits.
        time: Seconds since 1970.
        subject: The first line of its message.
        changes: Status, path and for a rename the new path, of each file.
    """

    hash: str
    time: int
    subject: str
    changes: tuple[tuple[str, ...], ...]


def build_commits(repo: Path, *, suffixes: Sequence[str] = ()) -> Dataset:
    """Build the data set of a git clone; it has times and no test part yet.

    Args:
        repo: The clone.
        suffixes: What names of files end in; none for `SUFFIXES`.
    """
    found = assemble_commits(list(read_log(repo)), frozenset(suffixes) or SUFFIXES, Path(repo).resolve().name)
    if found is None:
        raise DataError(
            "The repository has too few commits",
            got=str(repo),
            expected=f"files of source code that at least {MIN_QUERIES} commits touched",
            fix="use a full clone (git fetch --unshallow), or another repository",
        )
    return found


def read_log(repo: Path) -> Iterator[Commit]:
    """The commits of a clone that are no merges, the oldest first."""
    form = f"{_BEGIN}%H{_BETWEEN}%ct{_BETWEEN}%s"
    command = ["git", "-C", str(repo), "-c", "core.quotePath=false", "log", "--no-merges", "--reverse"]
    command += ["--name-status", "-M", "--no-color", "--no-ext-diff", f"--format={form}"]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        raise DataError("git cannot be run", got=str(error), fix="install git") from error
    if done.returncode:
        message = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise DataError(
            "The commits cannot be read",
            got=f"{repo}: {message[-1] if message else 'git failed'}",
            expected="a git clone",
            fix="give the folder of a clone with --repo",
        )
    for part in done.stdout.decode("utf-8", "replace").split(_BEGIN)[1:]:
        head, *lines = part.split("\n")
        digest, time, subject = head.split(_BETWEEN, 2)
        changes = tuple(tuple(line.split("\t")) for line in lines if "\t" in line)
        yield Commit(digest[:12], int(time), subject, changes)


def assemble_commits(commits: Sequence[Commit], suffixes: frozenset[str], name: str) -> Dataset | None:
    """The data set of commits, the oldest first; None where nothing is left."""
    files: dict[str, _File] = {}
    subjects: dict[int, str] = {}
    for number, commit in enumerate(commits):
        touched = _follow(files, commit, suffixes)
        subject = clean_subject(commit.subject)
        if subject is not None and 0 < len(touched) <= MOST_FILES:
            subjects[number] = subject
            for file in touched:
                file.commits.append(number)
    most = max(LARGEST_SHARE * len(subjects), LARGEST_COUNT)
    kept = [file for file in files.values() if MIN_QUERIES <= len(file.commits) <= most]
    kept = sorted((one for one in kept if len(one.path) <= MOST_ID), key=lambda file: file.path)
    texts = {file.path: split_path(file.path) for file in kept}
    asked = Counter(number for file in kept for number in file.commits)
    clicks = [(number, file.path) for file in kept for number in file.commits]
    if not clicks:
        return None
    return Dataset.of(
        texts,
        {commits[number].hash: subjects[number] for number in sorted(asked)},
        [(commits[number].hash, path) for number, path in clicks],
        times=[commits[number].time for number, _ in clicks],
        first_seen={file.path: file.first_seen for file in kept},
        name=name,
    )


def _follow(files: dict[str, _File], commit: Commit, suffixes: frozenset[str]) -> list[_File]:
    """The source files that the commit touched; `files` has them by their present paths."""
    touched = []
    for status, path, *new in commit.changes:
        if status.startswith("R") and new:
            file = files.pop(path, None) or _File(path, commit.time)
            path = file.path = new[0]
        else:
            path = new[0] if new else path  # a copy names its source first
            file = files.get(path) or _File(path, commit.time)
        if PurePosixPath(path).suffix.lower() in suffixes:
            files[path] = file
            if not status.startswith("D"):
                touched.append(file)
    return touched


def clean_subject(subject: str) -> str | None:
    """The subject without its ticket number; None for merges, version bumps, clean-ups and very short ones."""
    text = one_line(_TICKET.sub("", subject))
    return None if len(text) < SHORTEST_SUBJECT or _NOISE.search(text) else text


def split_path(path: str) -> str:
    """The path as words, without its suffix: "src/HttpClient.java" is "src Http Client"."""
    words = _SEPARATORS.sub(" ", str(PurePosixPath(path).with_suffix("")))
    return one_line(_BORDERS.sub(" ", words)) or path
