"""Running tables, their result file, and Markdown from it."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from metaxc.errors import ConfigError, DataError
from metaxc.irene import IreneConfig
from metaxc.research.bench import (
    TABLES,
    Context,
    Results,
    Row,
    RowResult,
    Table,
    get_table,
    read_records,
    run_table,
    select_rows,
)
from metaxc.research.bench.main_table import with_novel_ratio
from metaxc.research.bench.tables import gap_closed, render_markdown, render_table
from metaxc.research.report.report_data import read_bench_rows

CONFIG = IreneConfig(encoder="pretrained", folds=1)


def fake_rows(done, values, fails=()):
    """Rows that note that they ran; `values` per row are the per-query P@1 and R@10 of four queries."""

    def run_of(name, value):
        def run(context):
            done.append(name)
            if name in fails:
                raise DataError("It went wrong", got=name)
            queries = np.arange(len(value))
            kept = {"P@1": np.asarray(value, float), "R@10": np.asarray(value, float), "queries": queries}
            metrics = {"zero_shot": {"P@1": float(np.mean(value)), "R@10": float(np.mean(value))}}
            return RowResult(metrics, seconds={"fit": 1.0}, per_query={"zero_shot": kept})

        return run

    return [
        Row(name, "g", run_of(name, value), lambda context, name=name: {"name": name}, default=name == "base")
        for name, value in values.items()
    ]


VALUES = {"base": [100.0] * 40, "same": [100.0] * 40, "worse": [0.0] * 30 + [100.0] * 10, "last": [0.0] * 40}


class TestRunning:
    def test_finished_rows_are_skipped_and_a_partial_line_is_run_again(self, context, tmp_path):
        done, results = [], Results(tmp_path / "r.jsonl")
        rows = fake_rows(done, VALUES)
        table = Table("t", "", rows)
        run_table(context, table, rows[:3], results)
        whole = results.path.read_bytes()
        results.path.write_bytes(whole[:-20])  # killed while writing the third row
        assert [r["row"] for r in read_records(results.path)] == ["base", "same"]
        lines = []
        found = run_table(context, table, rows, results, report=lines.append)
        assert done == ["base", "same", "worse", "worse", "last"]
        assert [r["row"] for r in found] == list(VALUES)
        assert sum("already in the result file" in line for line in lines) == 2
        assert [json.loads(line)["row"] for line in results.path.read_text().splitlines()] == list(VALUES)

    def test_again_other_settings_and_other_data_run_a_row_again(self, context, world, tmp_path):
        done, results = [], Results(tmp_path / "r.jsonl")
        [row] = fake_rows(done, {"base": [1.0]})
        table = Table("t", "", [row])
        run_table(context, table, [row], results)
        run_table(context, table, [row], results, again=True)
        changed = Row(row.name, row.group, row.run, lambda context: {"name": "other"})
        run_table(context, table, [changed], results)
        other = Context(
            with_novel_ratio(world.dataset, 40, 0), CONFIG, folder=context.folder, encoder=world.encoder
        )
        run_table(other, table, [row], results)
        run_table(context, table, [row], results)
        assert len(done) == 4
        assert len(results.records()) == 3

    def test_a_failed_row_is_recorded_and_run_again_next_time(self, context, tmp_path):
        done, results = [], Results(tmp_path / "r.jsonl")
        rows = fake_rows(done, VALUES, fails=["same"])
        found = run_table(context, Table("t", "", rows), rows, results)
        assert "It went wrong" in found[1]["failed"]
        assert found[1]["metrics"] == {}
        assert len(read_bench_rows([results.path])) == 4
        assert [("failed" in r) for r in found] == [False, True, False, False]
        well = fake_rows(done, VALUES)
        assert "failed" not in run_table(context, Table("t", "", well), well, results)[1]
        assert done == [*VALUES, "same"]

    def test_rows_are_compared_with_the_default_on_the_same_queries(self, context, tmp_path):
        results = Results(tmp_path / "r.jsonl")
        rows = fake_rows([], VALUES)
        base, same, worse, _ = run_table(context, Table("t", "", rows), rows, results)
        assert "versus_default" not in base
        assert same["versus_default"]["zero_shot"]["P@1"]["significant"] is False
        found = worse["versus_default"]["zero_shot"]["R@10"]
        assert found["difference"] == -75.0
        assert found["low"] < -75 < found["high"] < 0
        assert found["significant"] is True

    def test_rows_are_compared_with_a_default_that_runs_later(self, context, tmp_path):
        done, results = [], Results(tmp_path / "r.jsonl")
        rows = fake_rows(done, VALUES)
        table = Table("t", "", rows)
        assert "versus_default" not in run_table(context, table, rows[2:], results)[0]
        run_table(context, table, rows, results)
        assert results.records()[0]["versus_default"]["zero_shot"]["P@1"]["difference"] == -75.0
        assert len(done) == 4

    def test_a_damaged_line_is_named(self, tmp_path):
        (tmp_path / "r.jsonl").write_text('{"table": "t"}\nnonsense\n')
        with pytest.raises(DataError, match="line 1"):
            Results(tmp_path / "r.jsonl").records()

    def test_rows_by_pattern(self):
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
        row.digest(context) for row in rows if "(frozen)" not in row.name and row.name != "bare encoder"
    }
    expected = [row for row in rows if "(frozen)" not in row.name and row.name != "bare encoder"]
    assert len(digests) == len(expected)


def test_the_page_keeps_what_is_written_by_hand():
    file = Path(__file__).parents[3] / "benchmarks" / "results_page.py"
    spec = importlib.util.spec_from_file_location("results_page", file)
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    old = page.replace_tables("by hand\n" + page.START + "also by hand\n", "old numbers")
    new = page.replace_tables(old, "new numbers")
    assert "old numbers" in old
    assert new == old.replace("old numbers", "new numbers")
    assert new.startswith("by hand\n")
    assert new.endswith("also by hand\n")
    assert "| LF-AOL-270K-10 | 30.9 → 36.5 (+5.6) | 54.2 → 59.6 (+5.4) |" in page.paper_gains()
    with pytest.raises(DataError, match="no markers"):
        page.replace_tables("nothing", "numbers")


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
