"""WordNet: names, pointers and closures on hand-written files, the counts on the real ones."""

import pytest

from metaxc.data.sources import build, wordnet
from metaxc.data.sources.assembly import Phrase
from metaxc.errors import DataError

NOUNS = """  1 This is a line of the licence
00000001 03 n 01 entity 0 001 ~ 00000002 n 0000 | that which exists; "a thing"
00000002 20 n 02 plant 0 living_plant 0 001 @ 00000001 n 0000 | a living organism
00000003 20 n 01 lichen 0 002 @ 00000002 n 0000 #m 00000005 n 0000 | any thallophytic plant
00000004 26 n 01 lichen 0 001 ;c 00000006 n 0000 | a skin disease
00000005 14 n 01 Lichenes 0 001 #p 00000006 n 0000 | comprising the lichens
00000006 09 n 01 science 0 000 | a branch of study
00000007 09 n 01 fit 0 001 @i 00000006 n 0000 | one two three four five six seven eight nine; "so"
00000008 09 n 01 fit 0 001 -c 00000006 n 0000 | short one
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data.noun").write_text(NOUNS)
    (tmp_path / "data.verb").write_text("")
    (tmp_path / "data.adj").write_text("00000009 00 s 01 alive(p) 0 001 ;r 00000002 n 0000 | living\n")
    (tmp_path / "data.adv").write_text("")
    return tmp_path


def test_names_and_headings(folder):
    synsets = {}
    for part in ("noun", "adj"):
        synsets.update(wordnet.read_synsets(folder / f"data.{part}"))
    assert list(wordnet.phrases(synsets)) == [
        Phrase("n00000001", "entity", []),
        Phrase("n00000002", "plant, living plant", ["entity"]),
        Phrase("n00000003", "lichen (plant)", ["plant, living plant", "entity", "Lichenes", "science"]),
        Phrase("n00000004", "lichen (state)", ["science"]),
        Phrase("n00000005", "Lichenes", ["science"]),
        Phrase("n00000006", "science", []),
        Phrase("n00000007", "fit (one two three four five six seven eight)", ["science"]),
        Phrase("n00000008", "fit (short one)", []),
        Phrase("a00000009", "alive", ["plant, living plant"]),
    ]


def test_cycle_of_pointers_terminates(tmp_path):
    line = "0000000{} 03 n 01 {} 0 001 @ 0000000{} n 0000 | x\n"
    (tmp_path / "data.noun").write_text(line.format(1, "a", 2) + line.format(2, "b", 1))
    synsets = dict(wordnet.read_synsets(tmp_path / "data.noun"))
    assert [phrase.headings for phrase in wordnet.phrases(synsets)] == [["b"], ["a"]]


def test_errors_name_missing_and_broken_files(tmp_path, folder):
    with pytest.raises(DataError, match="apt-get install wordnet-base"):
        wordnet.build_wordnet(tmp_path / "nowhere")
    (folder / "data.verb").write_text("00000001 99 v\n")
    with pytest.raises(DataError, match=r"data.verb, line 1"):
        wordnet.build_wordnet(folder)
    (folder / "data.adv").unlink()
    (folder / "data.verb").write_text("")
    with pytest.raises(DataError, match="A file of WordNet is missing"):
        wordnet.build_wordnet(folder)


@pytest.mark.slow
def test_real_wordnet():
    if not any((folder / "data.noun").is_file() for folder in wordnet.FOLDERS):
        pytest.skip("WordNet is not installed (apt-get install wordnet-base)")
    data = build("wordnet")
    assert len(data.items) == 17_755
    assert (len(data.train), len(data.test)) == (80_715, 14_243)
    assert (data.train.clicks.nnz, data.test.clicks.nnz) == (345_772, 60_938)
    assert data.test.queries.texts[0] == "British monetary unit"
