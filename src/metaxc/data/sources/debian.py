"""Debian packages: the description of a package and the packages related to it.

A query is the name and description of a package; its items are the packages from other source packages that it depends
on, recommends, suggests or enhances. The data are apt's indexes of the release's main archive and its updates, with the
English descriptions.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import subprocess
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from metaxc.data.dataset import Dataset
from metaxc.data.sources.assembly import SEED, TEST_FRACTION, Phrase, assemble, one_line
from metaxc.data.text_lines import limited_lines
from metaxc.errors import DataError

LISTS = Path("/var/lib/apt/lists")
"""The folder of apt's indexes."""

INSTALL = "on Debian, run apt-get -o Acquire::Languages=en update"

_APT_HELPER = Path("/usr/lib/apt/apt-helper")
# Names like deb.example.org_debian_dists_bookworm_main_binary-amd64_Packages.lz4. Sorted by name, security fixes and
# updates (debian-security, bookworm-updates) come before the release that they partly replace.
_PACKAGES = re.compile(r"_dists_[^_]+_main_binary-[^_]+_Packages(\.\w+)?$")
_DESCRIPTIONS = re.compile(r"_dists_[^_]+_main_i18n_Translation-en(\.\w+)?$")
_RELATIONS = ("Pre-Depends", "Depends", "Recommends", "Suggests", "Enhances")
_LONGEST_QUERY = 1500


@dataclass(frozen=True)
class Package:
    """A package: its name, source package, one-line summary, related package names and key of its long description."""

    name: str
    source: str
    summary: str
    related: tuple[str, ...]
    description_key: str


def build_debian(
    lists: Path | None = None, *, test_fraction: float = TEST_FRACTION, seed: int = SEED
) -> Dataset:
    """Build the data set of Debian packages.

    Args:
        lists: Folder of apt's indexes, plain or compressed; by default `LISTS`.
        test_fraction: Share of the queries that are held out for testing.
        seed: Seed of the split.
    """
    folder = Path(lists or LISTS)
    packages: dict[str, Package] = {}
    for file in _find_indexes(folder, _PACKAGES, "a Packages index of a release's main archive"):
        for package in read_packages(_read_index(file)):
            packages.setdefault(package.name, package)
    descriptions: dict[str, str] = {}
    for file in _find_indexes(folder, _DESCRIPTIONS, "its English descriptions (Translation-en)"):
        descriptions.update(read_descriptions(_read_index(file)))
    return assemble(phrases(packages, descriptions), name="debian", test_fraction=test_fraction, seed=seed)


def read_packages(lines: Iterable[str]) -> Iterator[Package]:
    """Packages of a Packages index."""
    for record in _read_paragraphs(lines):
        if "Package" not in record:
            continue
        name = record["Package"]
        wanted = ",".join(record.get(relation, "") for relation in _RELATIONS)
        # "a (>= 1) | b:any, c" names a, b and c.
        others = (re.split(r"[\s(:\[]", part.strip(), maxsplit=1)[0] for part in re.split(r"[,|]", wanted))
        related = tuple(dict.fromkeys(other for other in others if other))
        source = record.get("Source", name).split(" ")[0]
        yield Package(name, source, record.get("Description", ""), related, record.get("Description-md5", ""))


def read_descriptions(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Key (Description-md5) and long description of each package of a Translation-en file."""
    for record in _read_paragraphs(lines):
        _, _, body = record.get("Description-en", "").partition("\n")
        # A line with only a full stop represents a blank line.
        yield (
            record.get("Description-md5", ""),
            one_line(" ".join(line for line in body.split("\n") if line.strip() != ".")),
        )


def phrases(packages: dict[str, Package], descriptions: dict[str, str]) -> Iterator[Phrase]:
    """One phrase per package; its headings are the related packages that exist and have another source."""
    for package in packages.values():
        others = (packages[name] for name in package.related if name in packages)
        headings = [_title(other) for other in others if other.source != package.source]
        text = f"{_title(package)}. {descriptions.get(package.description_key, '')}"
        yield Phrase(package.name, text.strip()[:_LONGEST_QUERY], headings)


def _title(package: Package) -> str:
    return f"{package.name}: {package.summary}"


def _read_paragraphs(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Paragraphs of "Field: value" lines; a line that starts with white space continues the previous field."""
    record: dict[str, str] = {}
    field = ""
    for line in lines:
        if not line.strip():
            if record:
                yield record
            record = {}
        elif line[0].isspace():
            record[field] = f"{record.get(field, '')}\n{line}"
        else:
            field, _, value = line.partition(":")
            record[field] = value.strip()
    if record:
        yield record


def _find_indexes(folder: Path, pattern: re.Pattern[str], what: str) -> list[Path]:
    found = sorted(file for file in folder.glob("*") if pattern.search(file.name)) if folder.is_dir() else []
    if not found:
        raise DataError(
            f"The source debian needs {what}",
            got=f"none in {folder}",
            expected="apt's indexes",
            fix=INSTALL,
        )
    return found


def _open_index(file: Path) -> IO[bytes]:
    if file.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(file))
    if file.suffix == ".xz":
        return lzma.open(file)
    if file.suffix in (".lz4", ".zst", ".bz2"):
        command = [str(_APT_HELPER), "cat-file", str(file)]
        return io.BytesIO(subprocess.run(command, capture_output=True, check=True).stdout)
    return file.open("rb")


def _read_index(file: Path) -> list[str]:
    """Lines of an index; formats that Python cannot decompress (lz4, zstd) are left to apt's own helper."""
    try:
        with _open_index(file) as opened:
            return [line.decode("utf-8", "replace").rstrip("\n") for line in limited_lines(opened)]
    except (OSError, EOFError, zlib.error, lzma.LZMAError, subprocess.CalledProcessError) as error:
        raise DataError(
            "An index of apt cannot be read", got=f"{file}: {error}", expected="a complete file", fix=INSTALL
        ) from error
