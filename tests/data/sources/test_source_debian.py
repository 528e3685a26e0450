"""Debian's indexes: parsing of hand-written ones, plain and packed, and the real ones where apt has them."""

import gzip

import pytest

from metaxc.data.sources import build, debian
from metaxc.data.sources.assembly import Phrase
from metaxc.errors import DataError

PACKAGES = """Package: game
Source: game-src (1.0)
Depends: game-data (>= 1) | game-alt, libc6:any (>= 2.3) [amd64],
 zlib1g
Suggests: doc | virtual-thing
Description: a game
Description-md5: m1

Package: game-data
Source: game-src
Enhances: doc
Description: data of the game
Description-md5: m2

Package: libc6
Description: C library

Package: zlib1g
Description: compression

Package: doc
Description: documents
"""
ENGLISH = """Package: game
Description-md5: m1
Description-en: a game
 It is  great.
 .
 Play it.

Package: game-data
Description-md5: m2
Description-en: data of the game
"""
NAME = "deb.example.org_debian_dists_trixie_main_"


def test_relations_name_packages_of_other_sources():
    packages = {package.name: package for package in debian.read_packages(PACKAGES.split("\n"))}
    assert packages["game"].related == ("game-data", "game-alt", "libc6", "zlib1g", "doc", "virtual-thing")
    assert (packages["game"].source, packages["doc"].source) == ("game-src", "doc")
    descriptions = dict(debian.read_descriptions(ENGLISH.split("\n")))
    assert descriptions == {"m1": "It is great. Play it.", "m2": ""}
    assert list(debian.phrases(packages, descriptions))[:2] == [
        Phrase(
            "game",
            "game: a game. It is great. Play it.",
            ["libc6: C library", "zlib1g: compression", "doc: documents"],
        ),
        Phrase("game-data", "game-data: data of the game.", ["doc: documents"]),
    ]


def test_long_descriptions_are_truncated():
    packages = {p.name: p for p in debian.read_packages(PACKAGES.split("\n"))}
    first = next(debian.phrases(packages, {"m1": "long " * 1000}))
    assert len(first.text) == 1500


def test_compressed_indexes_are_read(tmp_path, monkeypatch):
    (tmp_path / f"{NAME}binary-amd64_Packages").write_text(PACKAGES)
    (tmp_path / f"{NAME}i18n_Translation-en.gz").write_bytes(gzip.compress(ENGLISH.encode()))
    monkeypatch.setattr(debian, "assemble", lambda phrases, **options: [phrase.concept for phrase in phrases])
    assert debian.build_debian(tmp_path) == ["game", "game-data", "libc6", "zlib1g", "doc"]


def test_errors_name_missing_indexes(tmp_path):
    with pytest.raises(DataError, match="Packages index"):
        debian.build_debian(tmp_path / "nowhere")
    (tmp_path / f"{NAME}binary-amd64_Packages").write_text(PACKAGES)
    with pytest.raises(DataError, match=r"apt-get -o Acquire::Languages=en update"):
        debian.build_debian(tmp_path)
    (tmp_path / f"{NAME}i18n_Translation-en.xz").write_bytes(b"no xz")
    with pytest.raises(DataError, match="cannot be read"):
        debian.build_debian(tmp_path)


@pytest.mark.slow
def test_real_archive():
    if not any(debian.LISTS.glob("*_main_i18n_Translation-en*")):
        pytest.skip(f"no English descriptions here ({debian.INSTALL})")
    data = build("debian")
    titles = {text.split(":")[0] for text in data.items.texts}
    assert {"git", "apt", "openssl"} <= titles
    assert 10_000 < len(data.items) < len(data.train)
