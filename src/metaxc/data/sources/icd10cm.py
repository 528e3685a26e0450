"""ICD-10-CM: clinical phrases and the headings of the code book they belong to.

The tabular list is a tree: chapters, sections, and codes within codes. Every code's description and every
inclusion term below it is a query; the headings above it are its items. An inclusion term also clicks the
description of its own code. The seventh characters (initial encounter, sequela …) add no wording of their own
and are left out. A section of one single category only repeats that category and is no heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

from metaxc.data.dataset import Dataset
from metaxc.data.sources.assembly import SEED, TEST_FRACTION, Phrase, assemble, one_line
from metaxc.errors import DataError

INSTALL = "pip install simple-icd-10-cm, or metaxc[icd10cm]"

_CODE_RANGE = re.compile(r"\s*\([A-Z][0-9A-Z]+(-[A-Z][0-9A-Z]+)?\)$")


def build(path: Path | None = None, *, test_fraction: float = TEST_FRACTION, seed: int = SEED) -> Dataset:
    """The data set.

    Args:
        path: The tabular list as XML (CDC's `icd10cm-tabular-….xml`); by default the one inside the package
            simple-icd-10-cm.
        test_fraction: Share of the queries set apart to test on; whole codes.
        seed: Of the split.
    """
    source = path or _packaged()
    try:
        book = ElementTree.fromstring(source.read_bytes())
    except (OSError, ElementTree.ParseError) as error:
        raise DataError(
            "The tabular list cannot be read",
            got=f"{source}: {error}",
            expected="an XML file with chapter, section and diag elements",
            fix=INSTALL,
        ) from error
    found = (phrase for chapter in book.iter("chapter") for phrase in phrases(chapter))
    return assemble(found, name="icd10cm", test_fraction=test_fraction, seed=seed)


def phrases(node: ElementTree.Element, above: tuple[str, ...] = ()) -> Iterator[Phrase]:
    """Phrases of a chapter, section or code and of all codes below it.

    Args:
        node: The element.
        above: Headings of the elements around it.
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
            yield from phrases(child, below)


def _packaged() -> Path:
    """The XML file inside simple-icd-10-cm."""
    try:
        folder = resources.files("simple_icd_10_cm") / "data"
    except ModuleNotFoundError as error:
        raise DataError(
            "The source icd10cm needs a package that is not installed",
            got="no module named simple_icd_10_cm",
            expected="simple-icd-10-cm 1.5 or later",
            fix=INSTALL,
        ) from error
    found = sorted(Path(str(folder)).glob("*tabular*.xml"))
    if not found:
        raise DataError(
            "simple-icd-10-cm holds no tabular list",
            got=str(folder),
            expected="a file named *tabular*.xml in it",
            fix=INSTALL.replace("pip install", "pip install --force-reinstall"),
        )
    return found[-1]
