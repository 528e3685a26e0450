"""Commits of a git clone: subjects, files, renames, times."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from metaxc.data import split
from metaxc.data.sources.git_commits import (
    LARGEST_COUNT,
    SUFFIXES,
    Commit,
    assemble_commits,
    build_commits,
    clean_subject,
    split_path,
)
from metaxc.errors import DataError


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("CAMEL-123: Fix the retry of the producer", "Fix the retry of the producer"),
        ("[ABC-7] Add a timeout to the client (#812)", "Add a timeout to the client"),
        ("#55 Read the header twice", "Read the header twice"),
        ("Merge branch 'main' into x", None),
        ("Bump jackson from 2.1 to 2.2", None),
        ("Upgrade Jackson to 2.2.1", None),
        ("Upgrade the guide for contributors", "Upgrade the guide for contributors"),
        ("fix typo in a comment", None),
        ("short", None),
    ],
)
def test_subjects(subject, expected):
    assert clean_subject(subject) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/main/HttpClient2Test.java", "src main Http Client 2 Test"),
        (".github/check_all.py", "github check all"),
        ("übung/größe.py", "übung größe"),
        ("a/XMLParser.py", "a XML Parser"),
    ],
)
def test_paths_are_words(path, expected):
    assert split_path(path) == expected


def commit(number: int, *changes: str, subject: str = "Change the behaviour of something") -> Commit:
    return Commit(f"{number:012d}", 1000 * number, subject, tuple(tuple(one.split()) for one in changes))


def test_a_renamed_file_stays_the_same_item():
    commits = [
        commit(1, "A a.py", "A b.py"),
        commit(2, "R100 a.py lib/new.py", "M b.py"),
        commit(3, "M lib/new.py", "D b.py", "A picture.png"),
    ]
    data = assemble_commits(commits, SUFFIXES, "x")
    assert data is not None
    assert data.items.ids == ["b.py", "lib/new.py"]
    assert data.items.texts == ["b", "lib new"]
    assert data.items.first_seen is not None
    assert data.items.first_seen.tolist() == [1000, 1000]
    assert data.train.clicks.toarray().tolist() == [[1, 1], [1, 1], [0, 1]]
    assert data.train.times is not None
    assert data.train.times.tolist() == [1000, 1000, 2000, 2000, 3000]


def test_large_commits_and_common_files_are_left_out():
    many = [f"A f{number}.py" for number in range(21)]
    commits = [
        commit(0, *many),
        *(commit(1 + number, "M f1.py", "M f2.py") for number in range(LARGEST_COUNT)),
    ]
    commits.append(commit(99, "M f2.py"))
    data = assemble_commits(commits, SUFFIXES, "x")
    assert data is not None
    assert data.items.ids == ["f1.py"]  # f2 is in one commit too many
    assert len(data.train) == LARGEST_COUNT
    assert assemble_commits(commits[:1], SUFFIXES, "x") is None


def test_a_clone(tmp_path: Path):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}

    def git(*arguments: str, time: int = 0) -> None:
        stamp = {"GIT_AUTHOR_DATE": f"{time} +0000", "GIT_COMMITTER_DATE": f"{time} +0000"} if time else {}
        names = ("-c", "user.name=n", "-c", "user.email=e@example.org")
        subprocess.run(
            ["git", *names, *arguments],
            cwd=tmp_path,
            check=True,
            env=environment | stamp,
            capture_output=True,
        )

    git("init", "-q")
    for number in range(1, 13):
        (tmp_path / f"größe {number % 4}.py").write_text(f"{number}\n" * 9)
        git("add", "-A")
        git(
            "commit",
            "-q",
            "-m",
            f"ABC-{number}: Teach it number {number}\n\nA body.",
            time=1_700_000_000 + number,
        )
    data = build_commits(tmp_path)
    assert data.items.texts == ["größe 0", "größe 1", "größe 2", "größe 3"]
    assert data.items.first_seen is not None
    assert data.items.first_seen.tolist() == [1_700_000_000 + number for number in (4, 1, 2, 3)]
    assert data.train.queries.texts[0] == "Teach it number 1"
    cut, report = split(data, by="time", novel=0.25, test=0.25)
    assert [cut.items.ids[row] for row in cut.novel_rows] == ["größe 0.py"]
    assert report.queries_test == 3
    with pytest.raises(DataError, match=r"cannot be read(.|\n)*--repo"):
        build_commits(tmp_path / "nowhere")
    with pytest.raises(DataError, match="too few commits"):
        build_commits(tmp_path, suffixes=[".none"])
