"""WordNet: the words of a concept (synset) and the concepts that it is a kind, a part or a topic of.

A query is the words of a synset. Its items are all synsets, near and far, that it is a kind or an instance of, or a
part, member or substance of, and the topics and regions that it belongs to directly. Synsets with the same words are
distinguished by their field, "lichen (plant)", or, if that is the same too, by the first words of their definition.

The files `data.noun`, `data.verb`, `data.adj` and `data.adv` of any WordNet are read, such as Debian's wordnet-base
(WordNet 3.0, Copyright 2006 by Princeton University).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from metaxc.data.data_problems import raise_first
from metaxc.data.dataset import Dataset
from metaxc.data.sources.assembly import SEED, TEST_FRACTION, Phrase, assemble, collect_reachable
from metaxc.data.text_lines import read_lines
from metaxc.errors import DataError

FOLDERS = (Path("/usr/share/wordnet"), Path("/usr/share/wordnet/dict"), Path("/usr/local/WordNet-3.0/dict"))
"""Folders that are searched if no path is given."""

INSTALL = "apt-get install wordnet-base, or download WordNet and pass the path of its dict folder"

_PARTS = ("noun", "verb", "adj", "adv")
# fmt: off
_FIELDS = (
    "adjective", "adjective", "adverb", "tops", "act", "animal", "artifact", "attribute", "body",
    "cognition", "communication", "event", "feeling", "food", "group", "location", "motive",
    "natural object", "person", "phenomenon", "plant", "possession", "process", "quantity", "relation",
    "shape", "state", "substance", "time", "body care", "change", "cognition", "communication",
    "competition", "consumption", "contact", "creation", "emotion", "motion", "perception",
    "possession", "social", "stative", "weather", "participle",
)
# fmt: on
"""Fields by their number in the files (lexnames(5WN))."""

_KIND_OF = ("@", "@i")
_PART_OF = ("#p", "#m", "#s")
_BELONGS_TO = (";c", ";r")
_MARKER = re.compile(r"\((a|p|ip)\)$")
_DEFINITION_WORDS = 8


@dataclass(frozen=True)
class Synset:
    """A concept: its words, its field, its definition, and the keys it points to by kind of pointer."""

    words: str
    field: str
    definition: str
    pointers: Mapping[str, tuple[str, ...]]


def build_wordnet(
    path: Path | None = None, *, test_fraction: float = TEST_FRACTION, seed: int = SEED
) -> Dataset:
    """Build the data set of WordNet.

    Args:
        path: Folder of the `data.*` files; by default one of `FOLDERS`.
        test_fraction: Share of the queries that are held out for testing.
        seed: Seed of the split.
    """
    folders = FOLDERS if path is None else (Path(path),)
    folder = next((f for f in folders if (f / "data.noun").is_file()), None)
    if folder is None:
        raise DataError(
            "WordNet was not found",
            got=f"no data.noun in {', '.join(map(str, folders))}",
            expected="a folder with data.noun, data.verb, data.adj, data.adv",
            fix=INSTALL,
        )
    synsets: dict[str, Synset] = {}
    for part in _PARTS:
        file = folder / f"data.{part}"
        if not file.is_file():
            raise DataError(
                "A file of WordNet is missing",
                got=f"no {file}",
                expected=f"files data.* for {', '.join(_PARTS)}",
                fix=INSTALL,
            )
        synsets.update(read_synsets(file))
    return assemble(phrases(synsets), name="wordnet", test_fraction=test_fraction, seed=seed)


def read_synsets(file: Path) -> Iterator[tuple[str, Synset]]:
    """Key and synset of each line of a `data.*` file (wndb(5WN)); lines of the licence start with a space."""
    for number, line in read_lines(file, raise_first(file.parent, INSTALL)):
        if line.startswith(" "):
            continue
        try:
            yield _parse_synset(line)
        except (ValueError, IndexError) as error:
            raise DataError(
                f"{file}, line {number}: The line is not a synset",
                got=repr(line[:80]),
                expected="offset field type words pointers | definition",
                fix=INSTALL,
            ) from error


def phrases(synsets: Mapping[str, Synset]) -> Iterator[Phrase]:
    """One phrase per synset, with the names of the synsets above it."""
    names = choose_names(synsets)
    for key, synset in synsets.items():
        above: dict[str, None] = {}
        for symbols in (_KIND_OF, _PART_OF):
            above |= collect_reachable(key, partial(_follow, synsets, symbols))
        above |= dict.fromkeys(_targets(synset, _BELONGS_TO))
        yield Phrase(key, names[key], [names[other] for other in above if other != key and other in names])


def choose_names(synsets: Mapping[str, Synset]) -> dict[str, str]:
    """A text for each synset: its words, with its field or definition if the words alone are not unique."""
    same_words = Counter(synset.words.lower() for synset in synsets.values())
    same_field = Counter((synset.words.lower(), synset.field) for synset in synsets.values())
    names = {}
    for key, synset in synsets.items():
        words = synset.words.lower()
        if same_words[words] == 1:
            names[key] = synset.words
        elif same_field[words, synset.field] == 1:
            names[key] = f"{synset.words} ({synset.field})"
        else:
            start = " ".join(synset.definition.split()[:_DEFINITION_WORDS])
            names[key] = f"{synset.words} ({start})"
    return names


def _parse_synset(line: str) -> tuple[str, Synset]:
    data, _, gloss = line.partition(" | ")
    columns = data.split()
    offset, field, kind, count = columns[0], int(columns[1]), columns[2], int(columns[3], 16)
    words = [_MARKER.sub("", word).replace("_", " ") for word in columns[4 : 4 + 2 * count : 2]]
    start = 4 + 2 * count
    pointers: dict[str, tuple[str, ...]] = {}
    for at in range(start + 1, start + 1 + 4 * int(columns[start]), 4):
        symbol, target, part = columns[at : at + 3]
        pointers[symbol] = (*pointers.get(symbol, ()), _key(part, target))
    return _key(kind, offset), Synset(
        ", ".join(words), _FIELDS[field], gloss.split('; "')[0].strip(), pointers
    )


def _key(part: str, offset: str) -> str:
    # A satellite adjective (s) is in data.adj, and pointers refer to it as an adjective (a).
    return f"{'a' if part == 's' else part}{offset}"


def _targets(synset: Synset, symbols: tuple[str, ...]) -> list[str]:
    return [target for symbol in symbols for target in synset.pointers.get(symbol, ())]


def _follow(synsets: Mapping[str, Synset], symbols: tuple[str, ...], key: str) -> list[str]:
    return _targets(synsets[key], symbols) if key in synsets else []
