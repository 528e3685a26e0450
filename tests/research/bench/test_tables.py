"""The tables by name, their result file, and Markdown from it."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from metaxc.artifacts import json_digest
from metaxc.errors import ConfigError, DataError
from metaxc.research.bench import TABLES, Results, get_table, run_table, select_rows
from metaxc.research.bench.tables import (
    DEPTH_COLUMNS,
    PAPER_METRICS,
    gap_closed,
    render_depths,
    render_markdown,
    render_table,
    split_by_code,
)
from metaxc.research.code_version import source_digest


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / "r.jsonl").write_text('{"table": "t"}\nnonsense\n')
    with pytest.raises(DataError, match="line 1"):
        Results(tmp_path / "r.jsonl").records()


def test_rows_by_pattern():
    table = get_table("main")
    assert [row.name for row in select_rows(table, "*ORACLE*")] == ["oracle (adapted)", "oracle (frozen)"]
    with pytest.raises(ConfigError, match="No row matches"):
        select_rows(table, "nothing")
    with pytest.raises(ConfigError, match="Unknown table"):
        get_table("nothing")


@pytest.mark.parametrize("name", TABLES)
def test_names_are_unique_and_settings_differ(name, context):
    rows = get_table(name).rows
    assert len({row.name for row in rows}) == len(rows)
    # In this context the frozen and the adapted encoder are one, so rows on either may share their settings.
    digests = {
        json_digest(row.settings(context))
        for row in rows
        if "(frozen)" not in row.name and row.name != "bare encoder"
    }
    expected = [row for row in rows if "(frozen)" not in row.name and row.name != "bare encoder"]
    assert len(digests) == len(expected)


@pytest.fixture
def page(monkeypatch):
    """The script benchmarks/results_page.py."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    return importlib.import_module("results_page")


def test_the_page_keeps_what_is_written_by_hand(page):
    marks = page.BEGIN, page.END
    old = page.replace_between("by hand\n" + page.START + "also by hand\n", *marks, "old numbers")
    new = page.replace_between(old, *marks, "new numbers")
    assert "old numbers" in old
    assert new == old.replace("old numbers", "new numbers")
    assert new.startswith("by hand\n")
    assert new.endswith("also by hand\n")
    assert "| LF-AOL-270K-10 | 30.9 → 36.5 (+5.6) | 54.2 → 59.6 (+5.4) |" in page.paper_gains()
    with pytest.raises(DataError, match="no markers"):
        page.replace_between("nothing", *marks, "numbers")


def test_the_page_shows_rows_of_the_present_code_and_counts_the_others(page, tmp_path, monkeypatch):
    def line(row, value, digest):
        named = {} if digest is None else {"source_digest": digest}
        return json.dumps(record(row, (value,) * 4, **named)) + "\n"

    now = {row.name: source_digest(row.sources) for row in get_table("main").rows}
    results = tmp_path / "results"
    results.mkdir()
    (results / "shop.jsonl").write_text(
        line("BM25", 11.0, "of other code")
        + line("BM25", 12.0, now["BM25"])  # the same row, measured again
        + line("TF-IDF", 13.0, "of other code")
        + line("ZestXML", 14.0, None)
        + line("metaxc", 15.0, now["BM25"])  # the digest of another row
        + line("a row that no table has", 16.0, now["metaxc"])
    )
    monkeypatch.setattr(
        sys, "argv", ["results_page.py", "--results", str(results), "--page", str(tmp_path / "p.md")]
    )
    page.main()
    text = (tmp_path / "p.md").read_text(encoding="utf-8")
    assert "| BM25 | **12.0** |" in text
    assert text.count("| BM25 |") == 1
    depths = (tmp_path / "p-depths.md").read_text(encoding="utf-8")
    assert depths.count("| BM25 |") == 2  # zero-shot and generalized
    assert "### zero-shot" in depths
    assert not any(f"| {name}" in text for name in ("BM25 | 11", "TF-IDF", "ZestXML", "metaxc", "a row"))
    assert "are left out: 4 in all, 4 of shop." in text
    assert page.describe_left_out([]) == ""


def compared(row, data, *versus_default, versus_best=None):
    """A line of the main table with the same difference, and ends of its interval, to the default in every column."""
    given = {"versus_default": versus_default, "versus_best": versus_best}
    settings = ("zero_shot", "generalized", "novel", "observed")
    found = {}
    for name, numbers in given.items():
        if numbers is not None:
            one = dict(zip(("difference", "low", "high"), numbers, strict=True))
            found[name] = {setting: {"P@1": one, "R@10": one} for setting in settings}
    return {"table": "main", "row": row, "data": data, **found}


def defaults(*names):
    """The default's own lines, which are compared with nothing."""
    return [{**compared("metaxc", name, 0.0, 0.0, 0.0), "versus_default": {}} for name in names]


class TestFindings:
    """A row's difference to the default is what the default loses."""

    def test_without_the_default_there_are_none(self, page):
        assert page.render_findings([compared("BM25", "shop", 9.0, 8.0, 10.0)]).startswith("No findings")

    def test_gains_and_losses_are_counted_and_shown(self, page):
        text = page.render_findings(
            [
                *defaults("shop", "farm", "zoo"),
                compared("adapted encoder alone", "shop", -2.0, -3.0, -1.0),
                compared("adapted encoder alone", "farm", 4.0, 2.0, 6.0),
                compared("adapted encoder alone", "zoo", 1.0, -1.0, 3.0),
            ]
        )
        assert (
            "Of 18 differences 6 are gains beyond the interval and 6 are losses (farm zero-shot P@1, farm"
            in text
        )
        assert "| shop | **+2.0 (1.0 to 3.0)** |" in text
        assert "| farm | **-4.0 (-6.0 to -2.0)** |" in text
        assert "| zoo | -1.0 (-3.0 to 1.0) |" in text
        assert (
            "farm: adapted encoder alone (zero-shot P@1 +4.0, zero-shot R@10 +4.0, all items P@1 +4.0,"
            in text
        )
        assert "**2. Where something else is better.**" in text

    def test_oracles_and_differences_within_the_interval_are_not_better(self, page):
        text = page.render_findings(
            [
                *defaults("shop"),
                compared("oracle (adapted)", "shop", 9.0, 8.0, 10.0),
                compared("BM25", "shop", 1.0, -1.0, 3.0),
            ]
        )
        assert "None, in none of these columns." in text

    def test_the_size_best_is_held_against_what_one_would_build_without_metaxc(self, page):
        practice = "fine-tuned sentence-transformers"
        best = compared("metaxc --size best", "shop", 0.0, -1.0, 1.0)
        above = compared(practice, "shop", 0.0, -1.0, 1.0, versus_best=(-2.0, -3.0, -1.0))
        tie = compared(practice, "shop", 0.0, -1.0, 1.0, versus_best=(0.7, -0.1, 1.5))
        below = compared(f"{practice} + BM25 (RRF)", "shop", 0.0, -1.0, 1.0, versus_best=(4.0, 3.0, 5.0))
        rows = [*defaults("shop"), best]
        nowhere = "1 data sets × 6 columns × 2 rows it is nowhere below beyond the interval."
        assert f"{nowhere} Within the interval it is 0.0 points below at most." in page.render_findings(
            [*rows, above]
        )
        assert f"{nowhere} Within the interval it is 0.7 points below at most." in page.render_findings(
            [*rows, tie]
        )
        found = page.render_findings([*rows, above, below])
        assert "below beyond the interval in: shop zero-shot P@1 (-4.0 against fine-tuned" in found
        assert found.count("-4.0 against") == 6
        assert "Not measured." in page.render_findings(rows)


def test_means_are_of_the_rows_that_all_data_sets_have():
    shop = [
        {**record("BM25", (10.0, 20.0, 30.0, 40.0)), "data": "shop"},
        {**record("TF-IDF", (1.0,) * 4), "data": "shop"},
    ]
    farm = [{**record("BM25", (20.0, 30.0, 40.0, 50.0)), "data": "farm"}]
    text = render_markdown([*shop, *farm])
    means = text.split("## shop")[0]
    assert "## Means over 2 data sets" in means
    assert "| BM25 | 15.0 | 25.0 | 35.0 | 45.0 |" in means
    assert "TF-IDF" not in means
    assert "Means over" not in render_markdown(shop)


def test_each_row_is_judged_by_its_own_sources():
    terms, model = source_digest(get_table("main").rows[-3].sources), source_digest()
    assert get_table("main").rows[-3].name == "BM25"
    assert terms != model
    current, others = split_by_code(
        [record("BM25", (1.0,) * 4, source_digest=terms), record("TF-IDF", (1.0,) * 4, source_digest=model)]
    )
    assert [one["row"] for one in current] == ["BM25"]
    assert [one["row"] for one in others] == ["TF-IDF"]


def test_a_line_has_every_column_of_the_papers_tables(context, tmp_path):
    table = get_table("main")
    [line] = run_table(context, table, select_rows(table, "bare encoder"), Results(tmp_path / "r.jsonl"))
    assert set(PAPER_METRICS) == {
        *("P@1", "P@3", "P@5", "P@30", "P@50", "P@100", "R@3", "R@10", "R@30", "R@50", "R@100")
    }
    for setting in ("zero_shot", "generalized"):
        assert set(PAPER_METRICS) <= line["metrics"][setting].keys()
    mixed = line["metrics"]["generalized"]
    assert all(mixed[kind]["R@10"] >= 0 for kind in ("novel", "observed"))
    assert mixed["H"] >= 0
    printed = render_markdown([line])
    assert "novel R@10 in the mix | observed R@10 in the mix | H |" in printed
    for setting in DEPTH_COLUMNS:
        assert f"### {setting}\n\n|  | {' | '.join(PAPER_METRICS)} |" in render_depths([line])


def record(row, values, group="g", **more):
    metrics = {
        "zero_shot": {"P@1": values[0], "R@10": values[1]},
        "generalized": {"P@1": values[2], "R@10": values[3]},
    }
    if len(values) > 4:
        metrics["generalized"] |= {"novel": {"R@10": values[4]}, "H": values[5]}
    head = {"table": "main", "row": row, "group": group, "data": "shop", "fingerprint": "f"}
    head["config"] = {"digest": row, "settings": {}}
    return {**head, "metrics": metrics, "intervals": {}, **more}


class TestTables:
    def rows(self):
        intervals = {
            "zero_shot": {"P@1": [39.0, 45.0], "R@10": [58.0, 62.0]},
            "generalized": {"novel": {"R@10": [4.0, 7.0]}, "H": [9.0, 12.0]},
        }
        failed = record("BM25", (0, 0, 0, 0), "terms", failed="It went\n  wrong") | {
            "metrics": {},
            "seconds": {},
        }
        return [
            record("bare encoder", (20.0, 30.0, 10.0, 10.0), "frozen encoder"),
            record(
                "metaxc",
                (42.0, 60.0, 50.0, 55.0, 5.5, 10.0),
                "adapted encoder",
                default=True,
                intervals=intervals,
            ),
            record("adapted encoder alone", (40.0, 63.0, 20.0, 25.0, 15.8, 11.0), "adapted encoder"),
            record("oracle (adapted)", (70.0, 80.0, 51.0, 56.0), group="oracle"),
            failed,
        ]

    def test_by_hand(self):
        lines = render_markdown(self.rows()).splitlines()
        assert lines[:3] == ["## shop", "", "### main"]
        assert lines[4] == (
            "|  | zero-shot P@1 | zero-shot R@10 | generalized P@1 | generalized R@10 | novel R@10 in the mix | H |"
        )
        assert lines[9] == "| metaxc | **42.0** | 60.0 | **50.0** | **55.0** | 5.5 | 10.0 |"
        assert (
            lines[8] == "| adapted encoder alone | 40.0 ≈ | **63.0** | 20.0 | 25.0 | **15.8** | **11.0** ≈ |"
        )
        assert lines[7] == "| bare encoder | 20.0 | 30.0 | 10.0 | 10.0 | – | – |"
        assert lines[10] == "| oracle (adapted) | 70.0 | 80.0 | 51.0 | 56.0 | – | – |"
        assert lines[6] == "| BM25 | – | – | – | – | – | – |"
        assert lines[12].endswith("from the bare encoder 60 % of the way to the oracle (adapted).")
        assert lines[14] == "BM25: not measured (It went wrong)"

    def test_records_of_older_versions_have_fewer_columns(self):
        old = [record("bare encoder", (20.0, 30.0, 10.0, 10.0)), record("metaxc", (42.0, 60.0, 50.0, 55.0))]
        head = render_table(old).splitlines()[0]
        assert head == "|  | zero-shot P@1 | zero-shot R@10 | generalized P@1 | generalized R@10 |"

    def test_gap_closed(self):
        assert gap_closed(self.rows()) == {"oracle (adapted)": pytest.approx(60.0)}
        assert gap_closed(self.rows()[1:]) == {}

    def test_the_newest_record_of_a_row_counts(self):
        rows = [*self.rows(), record("bare encoder", (21.0, 31.0, 11.0, 11.0))]
        assert "| bare encoder | 21.0 |" in render_markdown(rows)
        assert "| bare encoder | 20.0 |" not in render_markdown(rows)

    def test_notes_are_printed_once_with_their_rows(self):
        rows = [record(f"row {place}", (1.0,) * 4) | {"note": "all alike"} for place in range(5)]
        rows[1]["note"] = "best after 20 of 40 steps"
        rows[2]["note"] = ""
        last = render_table(rows).splitlines()[-2:]
        assert last == ["- row 0, row 3, row 4: all alike", "- row 1: best after 20 of 40 steps"]
        many = [record(f"row {place}", (1.0,) * 4) | {"note": "all alike"} for place in range(5)]
        assert render_table(many).splitlines()[-1] == "- row 0, row 1, row 2 and 2 more: all alike"

    def test_in_novel_ratio_each_ratio_has_its_best(self):
        rows = [
            record(f"{system}, {percent} % novel", (value,) * 4, f"{percent} % novel", table="novel-ratio")
            for percent, system, value in [(10, "a", 9.0), (10, "b", 8.0), (20, "a", 5.0), (20, "b", 7.0)]
        ]
        printed = render_table(rows)
        assert [line.count("**") for line in printed.splitlines()[2:]] == [8, 0, 0, 8]

    def test_latency(self):
        metrics = {
            "single": {"ms": 1.234, "times encoding": 0.1},
            "batch 256": {"ms": 0.05, "times encoding": 2.0},
        }
        row = record("select", (0, 0, 0, 0), table="latency") | {"metrics": metrics}
        assert render_table([row]).splitlines()[2] == "| select | 1.23 | 0.1 | 0.05 | 2 |"
