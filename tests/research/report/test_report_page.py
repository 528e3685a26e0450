"""The page: complete, self-contained and escaped; its provenance."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

from metaxc.emmett import Neighbour
from metaxc.evaluation import SETTINGS
from metaxc.research.report import collect_provenance, render_page
from metaxc.research.report.page import collect_scores, flatten, format_duration
from metaxc.research.report.report_data import (
    BenchRow,
    LearningCurve,
    build_bench_tables,
)

NASTY = "<script>alert('x')</script> & <b>\"bold\"</b>"


class TestProvenance:
    def test_facts(self, world, model):
        now = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)
        found = collect_provenance(model, world.dataset, "metaxc report M D", now)
        facts = dict(found.facts)
        assert facts["date"] == "2030-01-02 03:04 UTC"
        assert facts["data hash"] == world.dataset.fingerprint
        assert facts["model fingerprint"] == model.fingerprint
        assert facts["command"] == "metaxc report M D"
        assert dict(found.settings)["config.generator"] == "combine"

    def test_paths_are_shown_by_their_name(self):
        value = {"base": "/home/someone/weights", "deep": {"x": 0.1 + 0.2, "ids": list(range(9))}}
        assert flatten(value) == [("base", "weights"), ("deep.x", "0.3"), ("deep.ids", "9 entries")]


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
    def test_novel_and_observed_items_in_one_ranking(self, page, report):
        section = page[page.index('<section id="mixed"') : page.index('<section id="exposure"')]
        words = " ".join(" ".join(Page(section).words).split())
        assert "160 queries have a novel relevant item, 160 an observed one" in words
        for name in ("novel R@10", "novel P@1", "observed R@10", "H", "novel in top 10"):
            assert f'<th scope="col" class="n">{name}</th>' in section
        model, bare = report.mixed.rows
        assert f"<strong>{model.cells[2].number.value:.1f}</strong>" in section
        assert f"<strong>{bare.cells[2].number.value:.1f}</strong>" in section
        assert "▲ model better" in section
        assert 'aria-label="Recall at 10 by training clicks of the item, with 95 % intervals"' in section
        # In this world an item has 20 clicks, or none that a model may see: 40 and 160 items, 160 and 640 pairs.
        assert "10–29 160 640" in words
        assert "0 40 160" in words

    def test_all_sections_are_there_and_every_link_leads_to_one(self, page):
        parsed = Page(page)
        assert parsed.open == []
        wanted = [
            "headline", "mixed", "exposure", "similarity", "slices", "items", "curves", "latency", "provenance"
        ]  # fmt: skip
        assert parsed.links == [f"#{name}" for name in wanted]
        assert set(wanted) <= set(parsed.ids)
        assert len(parsed.ids) == len(set(parsed.ids)), "ids are unique, those of the plots too"
        assert page.lstrip().startswith("<!doctype html>")
        assert '<html lang="en">' in page
        assert parsed.tags.count("svg") == 9
        assert page.count('role="img" aria-label=') == 9
        assert "The model has no learning curves" in page

    def test_the_page_loads_nothing(self, page):
        parsed = Page(page)
        assert parsed.loads == []
        assert not {"script", "link", "img", "iframe", "object", "base"} & set(parsed.tags)
        assert set(re.findall(r"https?://[^\s\"'<>)]*", page)) == {"http://www.w3.org/2000/svg"}
        assert "@import" not in page
        assert set(re.findall(r"url\(([^)]*)\)", page)) <= {f"#{name}" for name in parsed.ids}

    def test_the_numbers_are_on_the_page(self, page, report):
        words = " ".join(Page(page).words)
        assert report.summary in words
        assert "▲ model better" in words
        assert report.conventions in words
        for item in report.gains.gained:
            assert item.id in words

    def test_all_texts_are_escaped(self, report, model, world):
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
            curves=[LearningCurve(NASTY, [1, 2], [2.0, 1.0])],
            training_seconds={NASTY: 1.0},
            bench=build_bench_tables([row]),
            warnings=[NASTY],
        )
        html = render_page(nasty, collect_provenance(model, world.dataset, NASTY))
        parsed = Page(html)
        assert not {"script", "b"} & set(parsed.tags)
        assert "<script" not in html.lower()
        assert "<b>" not in html
        assert sum(NASTY in words for words in parsed.words) > 20
        assert parsed.open == []


class TestLead:
    def test_the_lead_has_both_metrics_the_mix_and_the_training_time(self, report):
        lines = {line.name: {cell.key: cell.text for cell in line.cells} for line in collect_scores(report)}
        zero_shot, generalized = report.headlines["zero_shot"], report.headlines["generalized"]
        for name, table in (("New items alone", zero_shot), ("All items", generalized)):
            for metric in ("P@1", "R@10"):
                for row in table.rows:
                    assert lines[f"{name}: {metric}"][row.key] == f"{row.numbers[metric].value:.1f}"
        for kind in ("novel", "observed"):
            for row in report.mixed.rows:
                expected = f"{row.by_kind.kinds[kind]['R@10'].value:.1f}"
                assert lines[f"In the mix: {kind} R@10"][row.key] == expected

    def test_the_training_time_is_in_words(self):
        assert format_duration({}) == ""
        assert format_duration({"tune": 30.0, "fit": 75.4}) == "75 seconds"
        assert format_duration({"tune": 100.0, "index": 80.0}) == "3.0 minutes"

    def test_every_cell_of_a_wide_table_has_its_label_for_narrow_screens(self, report, world, model):
        page = render_page(report, collect_provenance(model, world.dataset, "c"))
        for table in re.findall(r'<table class="[^"]*stack[^"]*">.*?</table>', page, re.DOTALL):
            labels = re.findall(r'<td class="n"( data-label="[^"]+")?', table)
            assert labels
            assert all(labels)
