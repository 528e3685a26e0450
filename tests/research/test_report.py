"""The report: its numbers first, then the page."""

import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import numpy as np
import pytest
from metaxc.research.report.bench_section import BenchRow, bench_tables
from metaxc.research.report.gather import Curve, curves_of, seconds_of, warnings_of
from metaxc.research.report.headline import Comparison, headlines, holm, sentence
from metaxc.research.report.plots import Dot, dot_plot, need_altair
from metaxc.research.report.provenance import flatten, git_commit
from metaxc.research.report.render import signed, verdict
from metaxc.research.report.report_latency import measure, uncached
from metaxc.research.report.systems import Number, Pairs, judge, places_of

from metaxc.data import ClickLog, Dataset, Texts, click_matrix
from metaxc.emmett import Neighbour
from metaxc.encoders import Pretrained
from metaxc.errors import ConfigError, DataError
from metaxc.evaluation import SETTINGS
from metaxc.irene import Irene, IreneConfig
from metaxc.research.report import gather, headline, provenance, read_bench, render
from metaxc.research.report.gains import extremes, item_gains, similarity_bins
from metaxc.research.report.slices import all_slices, click_bounds

NASTY = "<script>alert('x')</script> & <b>\"bold\"</b>"


@pytest.fixture(scope="module")
def model(world):
    return Irene(IreneConfig(encoder="pretrained"), encoder=world.encoder).fit(world.dataset)


@pytest.fixture(scope="module")
def report(world, model):
    return gather(model, world.encoder, world.dataset)


@pytest.fixture(scope="module")
def page(report, model, world):
    return render(report, provenance(model, world.dataset, "metaxc report M D --out r.html"))


@pytest.fixture
def tiny():
    """Items 0 to 3 observed with 4, 3, 2 and 1 clicks, 4 and 5 novel. Test: a clicked 0 and 4, b 5, c 1 and 3."""
    names = [f"i{i}" for i in range(6)]
    texts = ["one", "one two", "one two", "one two three", "one", "one two three"]

    def log(queries, pairs):
        rows, items = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
        return ClickLog(Texts(list(queries), list(queries)), click_matrix(rows, items, (len(queries), 6)))

    train = log("stuv", [(q, i) for i, n in enumerate([4, 3, 2, 1, 1]) for q in range(n)])
    test = log("abc", [(0, 0), (0, 4), (1, 5), (2, 1), (2, 3)])
    return Dataset(Texts(names, texts), train, test, np.array([False] * 4 + [True] * 2), name="tiny")


def order(*rows):
    """A search that ranks these items for every query."""

    def search(texts, k, among):
        kept = [row for row in rows if among is None or among[row]][:k]
        return np.tile(kept + [-1] * (k - len(kept)), (len(texts), 1))

    return search


def oracle(dataset, wrong=()):
    """A search that has the relevant items first; last for the queries in `wrong`."""
    relevant = dataset.test.clicks.toarray() > 0
    row_of = {text: row for row, text in enumerate(dataset.test.queries.texts)}

    def search(texts, k, among):
        ranked = []
        for text in texts:
            mark = relevant[row_of[text]] == (text not in wrong)
            places = np.lexsort((np.arange(len(mark)), ~mark))
            ranked.append([p for p in places if among is None or among[p]][:k])
        return np.array(ranked)

    return search


class TestHeadline:
    def test_the_model_knows_everything_and_the_embedding_nothing(self, report):
        zero = report.headlines["zero_shot"]
        assert (zero.queries, zero.items) == (160, 40)
        assert zero.row("model").numbers["P@1"] == Number(100.0, 100.0, 100.0)
        assert zero.row("model").numbers["P@5"].value == pytest.approx(20)
        bare = zero.row("bare")
        assert bare.numbers["P@1"].value < 20
        assert bare.against["P@1"].gain == pytest.approx(100 - bare.numbers["P@1"].value)
        assert bare.against["P@1"].verdict == "better"
        assert list(report.systems) == ["model", "bare"], "the model's encoder is the bare one: no third row"

    def test_the_sentence_says_it_in_words(self, report):
        assert report.sentence.startswith(
            "On 40 items nobody has clicked, the first answer is right for 100 % of 160 queries, against "
        )
        assert (
            "with the given vectors: better, and chance does not explain it (p = 0.001)." in report.sentence
        )
        assert "It is worse in" not in report.sentence

    def test_better_worse_and_same_are_told_apart(self, world, monkeypatch):
        monkeypatch.setattr(headline, "RESAMPLES", 1000)
        data, every = world.dataset, set(world.dataset.test.queries.texts)
        right, wrong = oracle(data), oracle(data, every)
        almost = oracle(data, {"t7"})
        systems = [
            judge("model", "M", almost, data),
            judge("adapted", "A", right, data),
            judge("bare", "B", wrong, data),
        ]
        zero = headlines(systems)["zero_shot"]
        assert zero.row("model").against == {}
        assert zero.row("adapted").against["P@1"].gain == pytest.approx(-100 / 160)
        assert zero.row("adapted").against["P@1"].verdict == "same", "one query of 160 shows nothing"
        assert zero.row("bare").against["P@1"].verdict == "better"
        worse = headlines([replace(systems[2], key="model"), replace(systems[1], key="bare")])
        assert worse["zero_shot"].row("bare").against["R@10"].verdict == "worse"
        told = sentence(worse)
        assert "right for 0 % of 160 queries, against 100 % with A: worse" in told
        assert "It is worse in zero-shot P@1 (0.0 against 100.0), " in told
        same = headlines([replace(systems[1], key="model"), replace(systems[1], key="bare")])
        assert {c.p for c in same["zero_shot"].row("bare").against.values()} == {1.0}
        assert "right for 100.0 % of 160 queries, against 100.0 % with A: no difference" in sentence(same)

    def test_marks_are_words_and_symbols(self):
        assert verdict(Comparison(2.0, 0.01)) == "▲ model better"
        assert verdict(Comparison(-2.0, 0.01)) == "▼ model worse"
        assert verdict(Comparison(2.0, 0.05)) == "≈ no difference"
        assert Comparison(2.0, 0.0004).p_words == "p < 0.001"
        assert signed(-1.25) == "−1.2"

    def test_holm(self):
        # By hand: 0.01 × 3, then 0.03 × 2, then max with 0.04 × 1.
        assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
        assert holm([0.9, 0.8]) == [1.0, 1.0]


class TestPlaces:
    def test_where_relevant_items_stand(self):
        pairs = Pairs(np.array([0, 0, 1]), np.array([2, 3, 0]), 2)
        assert places_of(np.array([[3, 1, 2], [2, 1, -1]]), pairs, None).tolist() == [3, 1, 0]

    def test_filtered_answers_take_no_place(self, tiny):
        filters = click_matrix(np.array([0, 2]), np.array([2, 1]), (3, 6))
        judged = judge("model", "M", order(2, 1, 4, 0, 3, 5), replace(tiny, filters=filters))
        # a: 2 is left out, so 0 is third and 4 second; b: 5 is sixth; c: 1 is filtered, 3 is fourth.
        assert judged.places["generalized"].tolist() == [3, 2, 6, 4]
        assert judged.places["zero_shot"].tolist() == [1, 2]
        assert judged.evaluation["generalized"]["R@1"] == 0
        assert judged.evaluation["generalized"]["R@3"] == pytest.approx(100 / 3)


class TestSlices:
    @pytest.fixture
    def slices(self, tiny):
        found = judge("model", "M", order(0, 4, 1, 5, 2, 3), tiny)
        nothing = judge("bare", "B", lambda texts, k, among: np.full((len(texts), k), -1), tiny)
        return {(s.title, s.setting): s for s in all_slices([found, nothing], tiny)}

    def test_items_by_clicks(self, slices):
        groups = slices["items by training clicks", "generalized"].groups
        # 10 clicks in all: item 0 has 4, more than a third; with item 1 it is 7, more than two thirds.
        assert [(g.name, g.count) for g in groups] == [
            ("head: 4 clicks or more", 1),
            ("torso: 3 clicks", 1),
            ("tail: 1 to 2 clicks", 1),
            ("no clicks", 2),
        ]
        assert all(g.numbers["model"].value == 100 and g.numbers["bare"].value == 0 for g in groups)
        assert all(g.gain == Number(100.0, 100.0, 100.0) for g in groups)

    def test_queries_by_novel_share(self, slices):
        groups = slices["queries by novel items", "generalized"].groups
        assert [(g.name, g.count) for g in groups] == [("all novel", 1), ("some novel", 1), ("none novel", 1)]

    def test_items_by_length(self, slices):
        groups = slices["items by text length", "generalized"].groups
        # The five pairs' items have 1, 1, 3, 2 and 3 words.
        assert [(g.name, g.count) for g in groups] == [("1 word", 2), ("2 to 3 words", 3)]
        assert [g.count for g in slices["items by text length", "zero_shot"].groups] == [1, 1]

    def test_pairs_count_once_each_and_not_by_query(self, tiny):
        deep = replace(tiny, items=Texts(tiny.items.ids, ["same"] * 6))
        ours = judge("model", "M", order(0, 1, 2, 3, 4), deep)
        bare = judge("bare", "B", order(0), deep)
        (group,) = {(s.title, s.setting): s for s in all_slices([ours, bare], deep)}[
            "items by text length", "generalized"
        ].groups
        # Found pairs of 5: all but (b, 5); against (a, 0) alone. By query it would be 2 / 3 and 1 / 6.
        assert group.numbers["model"].value == pytest.approx(80)
        assert group.numbers["bare"].value == pytest.approx(20)
        assert group.gain.value == pytest.approx(60)
        assert group.gain.low < 60 < group.gain.high

    def test_click_bounds_keep_equal_counts_together(self):
        assert click_bounds(np.array([5, 5, 5, 0])) == (5, 5)
        assert click_bounds(np.array([90, 1, 1, 1])) == (90, 90)
        assert click_bounds(np.array([3, 3, 2, 2, 1, 1])) == (3, 2)


class TestGains:
    def test_every_item_of_the_world(self, report):
        gains = report.gains
        assert gains.items == 40
        assert gains.worse == 0
        assert gains.lost == []
        assert len(gains.gained) == 20
        assert [item.gain for item in gains.gained] == sorted((i.gain for i in gains.gained), reverse=True)
        assert sum(b.items for b in gains.bins) == 40
        assert len(gains.bins) == 8
        item = gains.gained[0]
        assert (item.queries, item.recall) == (4, 100.0)
        assert item.example.place == 1
        assert item.example.bare_place > 10
        group = int(item.id[1:]) // 5
        assert int(item.example.query[1:]) // 4 == group, "a query of the item's own group"
        assert int(item.neighbours[0].id[1:]) // 5 == group

    def test_recall_is_of_the_item_and_not_of_its_queries(self, world, model):
        data = world.dataset
        ours = judge("model", "M", oracle(data, {"t0", "t1", "t2"}), data)
        bare = judge("bare", "B", oracle(data), data)
        gains = item_gains(model, ours, bare, data)
        (lost,) = gains.lost
        assert (lost.id, lost.recall, lost.bare_recall) == ("i4", 25.0, 100.0)
        assert lost.example.query == "t0"
        assert (lost.example.place, lost.example.bare_place) == (40, 1)
        assert (gains.better, gains.worse, gains.gained) == (0, 1, [])

    def test_ties_go_to_more_queries_then_to_order(self):
        gain, queries = np.array([50.0, 50, 0, 50, -10, -10]), np.array([1, 2, 9, 2, 1, 1])
        assert extremes(gain, queries, 2) == ([1, 3], [4, 5])

    def test_bins_of_equally_many_items(self):
        similarity = np.linspace(1, 0, 40)
        bins = similarity_bins(similarity, np.where(similarity > 0.5, 10.0, 0.0))
        assert [b.items for b in bins] == [5] * 8
        assert [b.gain.value for b in bins] == [0] * 4 + [10] * 4
        assert bins[0].low == 0
        assert bins[-1].high == 1
        assert len(similarity_bins(similarity[:7], similarity[:7])) == 1


def test_curves_and_seconds_where_they_were_kept():
    about = {
        "curves": {
            "encoder": {"loss": [3.0, 2.0, float("nan")], "step": [10, 20, 30]},
            "generator": {"loss": []},
        },
        "seconds": {"encoder": 3},
    }
    assert curves_of(about) == [Curve("encoder", [10, 20], [3, 2])]
    assert curves_of({}) == []
    (long,) = curves_of({"curves": {"generator": {"loss": list(range(1000))}}})
    assert len(long.loss) == 200
    assert (long.step[0], long.step[-1], long.loss[-1]) == (1, 1000, 999)
    assert (seconds_of(about), seconds_of({})) == ({"encoder": 3.0}, {})


def test_a_model_of_another_split_is_told(world, model):
    assert warnings_of(model, world.dataset) == []
    novel = world.dataset.novel_mask.copy()
    novel[:2] = True
    other, observed = warnings_of(model, world.dataset.with_novel(novel))
    assert "other data" in other
    assert observed.startswith("2 of the 42 novel items were observed")


def test_latency_measures_every_stage_and_leaves_the_cache(world, model):
    found = measure(model, ["t0", "t1", "t2"], ["i4", "i9"], batch=8)
    assert [s.name for s in found.stages] == [
        "encode a query",
        "search, first 10",
        "encode an item",
        "select neighbours",
        "generate",
    ]
    assert all(s.single > 0 and s.batch > 0 for s in found.stages)
    assert found.items == 200
    base = Pretrained.__new__(Pretrained)
    base.cache = "a cache"
    with uncached(base):
        assert base.cache is None
    assert base.cache == "a cache"


class TestBench:
    LINE = '{"table": "main", "row": "BM25", "data": "d", "metrics": {"zero_shot": {"P@1": 1.5, "odd": 2}}, "x": 1}\n'

    def test_rows_become_tables(self, tmp_path):
        (tmp_path / "a.jsonl").write_text(self.LINE + "\n")
        again = self.LINE.replace("1.5", "2.5").replace('"x": 1', '"seconds": {"fit": 3}')
        (tmp_path / "b.jsonl").write_text(self.LINE.replace("BM25", "other") + again)
        (table,) = bench_tables(read_bench([tmp_path / "a.jsonl", tmp_path / "b.jsonl"]))
        assert (table.setting, table.metrics, table.timed) == ("zero_shot", ["P@1"], ["fit"])
        assert [(r.row, r.metrics["zero_shot"]["P@1"]) for r in table.rows] == [("BM25", 2.5), ("other", 1.5)]
        assert table.best("P@1") == 2.5

    @pytest.mark.parametrize("line", ["{", "[]", '{"table": "t", "row": "r", "data": "d", "metrics": 3}'])
    def test_a_bad_line_is_named(self, line, tmp_path):
        (tmp_path / "a.jsonl").write_text(self.LINE + line + "\n")
        with pytest.raises(DataError, match=r"a\.jsonl, line 2"):
            read_bench([tmp_path / "a.jsonl"])
        with pytest.raises(DataError, match="cannot be read"):
            read_bench([tmp_path / "none.jsonl"])


class TestProvenance:
    def test_facts(self, world, model):
        now = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)
        found = provenance(model, world.dataset, "metaxc report M D", now)
        facts = dict(found.facts)
        assert facts["date"] == "2030-01-02 03:04 UTC"
        assert facts["data hash"] == world.dataset.fingerprint
        assert facts["model fingerprint"] == model.fingerprint
        assert facts["command"] == "metaxc report M D"
        assert dict(found.settings)["config.generator"] == "combine"

    def test_paths_are_shown_by_their_name(self):
        value = {"base": "/home/someone/weights", "deep": {"x": 0.1 + 0.2, "ids": list(range(9))}}
        assert flatten(value) == [("base", "weights"), ("deep.x", "0.3"), ("deep.ids", "9 entries")]

    def test_no_commit_outside_a_work_tree(self, tmp_path):
        assert git_commit(tmp_path) is None


class Page(HTMLParser):
    """What a browser would load, link to, and show."""

    VOID = ("meta", "br")

    def __init__(self, text):
        super().__init__()
        self.loads, self.links, self.ids, self.tags, self.open, self.words = [], [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "srcset", "data", "poster", "xlink:href", "background", "action") or (
                name == "href" and tag != "a"
            ):
                self.loads.append(value)
            elif name == "href":
                self.links.append(value)
            elif name == "id":
                self.ids.append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


class TestPage:
    def test_all_sections_are_there_and_every_link_leads_to_one(self, page):
        parsed = Page(page)
        assert parsed.open == []
        wanted = ["headline", "similarity", "slices", "items", "curves", "latency", "provenance"]
        assert parsed.links == [f"#{name}" for name in wanted]
        assert set(wanted) <= set(parsed.ids)
        assert len(parsed.ids) == len(set(parsed.ids)), "ids are unique, those of the plots too"
        assert page.lstrip().startswith("<!doctype html>")
        assert '<html lang="en">' in page
        assert parsed.tags.count("svg") == 7
        assert page.count('role="img" aria-label=') == 7
        assert "The model kept no learning curves" in page

    def test_nothing_is_loaded_from_anywhere(self, page):
        parsed = Page(page)
        assert parsed.loads == []
        assert not {"script", "link", "img", "iframe", "object", "base"} & set(parsed.tags)
        assert set(re.findall(r"https?://[^\s\"'<>)]*", page)) == {"http://www.w3.org/2000/svg"}
        assert "@import" not in page
        assert set(re.findall(r"url\(([^)]*)\)", page)) <= {f"#{name}" for name in parsed.ids}

    def test_the_numbers_are_on_the_page(self, page, report):
        words = " ".join(Page(page).words)
        assert report.sentence in words
        assert "▲ model better" in words
        assert report.conventions in words
        for item in report.gains.gained:
            assert item.id in words

    def test_texts_are_escaped_wherever_they_stand(self, report, model, world):
        item = replace(
            report.gains.gained[0],
            id=NASTY,
            text=NASTY,
            example=replace(report.gains.gained[0].example, query=NASTY),
            neighbours=[Neighbour(NASTY, NASTY, 0.5, 1.0, 10.0)],
        )
        row = BenchRow(table=NASTY, row=NASTY, data=NASTY, metrics={s: {"P@1": 5.0} for s in SETTINGS})
        nasty = replace(
            report,
            data=NASTY,
            systems={key: NASTY + key for key in report.systems},
            gains=replace(report.gains, gained=[item]),
            slices=[replace(part, title=NASTY) for part in report.slices],
            curves=[Curve(NASTY, [1, 2], [2.0, 1.0])],
            training_seconds={NASTY: 1.0},
            bench=bench_tables([row]),
            warnings=[NASTY],
        )
        made = render(nasty, provenance(model, world.dataset, NASTY))
        parsed = Page(made)
        assert not {"script", "b"} & set(parsed.tags)
        assert "<script" not in made.lower()
        assert "<b>" not in made
        assert sum(NASTY in words for words in parsed.words) > 20
        assert parsed.open == []

    def test_plots_take_the_pages_colour_and_name_their_marks(self):
        svg = dot_plot([Dot("g", "s", 5, 4, 6), Dot("g", "t", 7, None, None)], "percent", "A & B")
        assert svg.startswith("<svg")
        assert 'aria-label="A &amp; B"' in svg
        assert "<title>A &amp; B</title>" in svg
        assert 'fill="currentColor"' in svg
        assert "#010203" not in svg

    def test_without_the_extra_packages_the_error_says_how_to_get_them(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "vl_convert", None)
        with pytest.raises(ConfigError, match=r"pip install 'metaxc\[report\]'"):
            need_altair()
