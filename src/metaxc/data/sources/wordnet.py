"""WordNet: the words of a concept (synset) and the concepts it is a kind of, a part of, or a topic of.

A query is a synset's words. Its items are all that it is a kind or an instance of, all that it is a part,
member or substance of, near and far, and the topics and regions it is directly filed under. Synsets of the
same words are told apart by their field, "lichen (plant)", or, where that is the same too, by the first words
of their definition.

Reads the `data.noun`, `data.verb`, `data.adj` and `data.adv` files of any WordNet, such as Debian's
wordnet-base (WordNet 3.0, Copyright 2006 by Princeton University).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from metaxc.data.dataset import Dataset
from metaxc.data.sources.assembly import SEED, TEST_FRACTION, Phrase, assemble
from metaxc.errors import DataError

FOLDERS = (Path("/usr/share/wordnet"), Path("/usr/share/wordnet/dict"), Path("/usr/local/WordNet-3.0/dict"))
"""Where `build` looks when no path is given."""

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
_FILED_UNDER = (";c", ";r")
_MARKER = re.compile(r"\((a|p|ip)\)$")
_DEFINITION_WORDS = 8


@dataclass(frozen=True)
class Synset:
    """A concept: its words, its field, its definition, and the keys it points to by kind of pointer."""

    words: str
    field: str
    definition: str
    pointers: Mapping[str, tuple[str, ...]]


def build(path: Path | None = None, *, test_fraction: float = TEST_FRACTION, seed: int = SEED) -> Dataset:
    """The data set.

    Args:
        path: Folder of the `data.*` files; by default the usual places (`FOLDERS`).
        test_fraction: Share of the queries set apart to test on.
        seed: Of the split.
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
                "A part of WordNet is missing", got=f"no {file}", expected=str(_PARTS), fix=INSTALL
            )
        synsets.update(read_synsets(file))
    return assemble(phrases(synsets), name="wordnet", test_fraction=test_fraction, seed=seed)


def read_synsets(file: Path) -> Iterator[tuple[str, Synset]]:
    """Key and synset of each line of a `data.*` file (wndb(5WN)); lines of the licence start with blanks."""
    with file.open(encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if line.startswith(" "):
                continue
            try:
                yield _synset(line)
            except (ValueError, IndexError) as error:
                raise DataError(
                    f"{file}, line {number}, is no synset",
                    got=repr(line[:80]),
                    expected="offset field type words pointers | definition",
                    fix=INSTALL,
                ) from error


def phrases(synsets: Mapping[str, Synset]) -> Iterator[Phrase]:
    """One phrase per synset, with the names of the synsets above it."""
    names = name(synsets)
    for key, synset in synsets.items():
        above = _closure(key, synsets, _KIND_OF) | _closure(key, synsets, _PART_OF)
        above |= dict.fromkeys(_pointed(synset, _FILED_UNDER))
        yield Phrase(key, names[key], [names[other] for other in above if other != key and other in names])


def name(synsets: Mapping[str, Synset]) -> dict[str, str]:
    """A text per synset: its words, with its field or definition where the words alone are not unique."""
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


def _synset(line: str) -> tuple[str, Synset]:
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
    # A satellite adjective (s) lives in data.adj, where pointers call it an adjective (a).
    return f"{'a' if part == 's' else part}{offset}"


def _pointed(synset: Synset, symbols: tuple[str, ...]) -> list[str]:
    return [target for symbol in symbols for target in synset.pointers.get(symbol, ())]


def _closure(key: str, synsets: Mapping[str, Synset], symbols: tuple[str, ...]) -> dict[str, None]:
    """Keys that are reached from `key` by the pointers, near ones first."""
    reached: dict[str, None] = {}
    waiting = [key]
    while waiting:
        nearer = [target for at in waiting if at in synsets for target in _pointed(synsets[at], symbols)]
        waiting = [target for target in dict.fromkeys(nearer) if target not in reached]
        reached.update(dict.fromkeys(waiting))
    return reached
