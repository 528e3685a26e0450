"""ICD-10-CM: the tree's rules on a hand-written book, the counts on the real one."""

from xml.etree import ElementTree

import pytest

from metaxc.data.sources import build, icd10cm
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


def test_headings_of_codes_and_of_inclusion_terms():
    chapter = ElementTree.fromstring(BOOK).find("chapter")
    found = [(p.concept, p.text, p.headings) for p in icd10cm.phrases(chapter)]
    top, middle = "Certain infections", "Intestinal infections"
    assert found == [
        ("A00", "Cholera", (top, middle)),
        ("A00.0", "Classical cholera", (top, middle, "Cholera")),
        ("A00.0", "Cholera by Vibrio", (top, middle, "Cholera", "Classical cholera")),
        ("B20", "HIV [infection]", (top,)),
        ("B20", "AIDS", (top, "HIV [infection]")),
    ]


def test_what_is_no_book_is_refused(tmp_path):
    (tmp_path / "book.xml").write_text("<broken")
    with pytest.raises(DataError, match="pip install simple-icd-10-cm"):
        icd10cm.build(tmp_path / "book.xml")


def test_a_missing_package_is_named_with_its_install_line(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(icd10cm.resources, "files", missing)
    with pytest.raises(DataError, match=r"to fix: pip install simple-icd-10-cm"):
        icd10cm.build()


@pytest.mark.slow
def test_the_real_book():
    pytest.importorskip("simple_icd_10_cm", reason="pip install simple-icd-10-cm")
    data = build("icd10cm")
    assert len(data.items) == 12_737
    assert (len(data.train) + len(data.test), len(data.test)) == (59_487, 8_924)
    assert data.train.clicks.nnz + data.test.clicks.nnz == 184_454
    assert (
        data.items.texts[0] == "(Induced) termination of pregnancy with other and unspecified complications"
    )
