"""Running rows: what is skipped, run again, recorded and compared, and in which order."""

import json
from dataclasses import replace

import numpy as np
import pytest

from metaxc.errors import DataError
from metaxc.irene import IreneConfig
from metaxc.research import code_version
from metaxc.research.bench import (
    TABLES,
    Context,
    Results,
    Row,
    RowResult,
    Table,
    get_table,
    read_records,
    run_all,
    run_table,
)
from metaxc.research.bench.main_table import with_novel_ratio
from metaxc.research.bench.results import BEST
from metaxc.research.bench.rows import FINE_TUNED, SharedModel
from metaxc.research.bench.running import plan_rows
from metaxc.research.code_version import MODEL_SOURCES, source_digest
from metaxc.research.report.report_data import read_bench_rows

CONFIG = IreneConfig(encoder="pretrained", folds=1)


def fake_rows(done, values, fails=(), crashes=()):
    """Rows that note that they ran; `values` per row are the per-query P@1 and R@10 of four queries."""

    def run_of(name, value):
        def run(context):
            done.append(name)
            if name in fails:
                raise DataError("It went wrong", got=name)
            if name in crashes:
                raise ZeroDivisionError("an unforeseen mistake")
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
        run_table(context, table, [row], results, rerun="all")
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

    def test_rows_with_a_fine_tuned_encoder_are_compared_with_the_size_best_too(self, context, tmp_path):
        results = Results(tmp_path / "r.jsonl")
        rows = fake_rows(
            [], {"base": [100.0] * 40, BEST: [50.0] * 40, "tuned": [0.0] * 40, "frozen": [0.0] * 40}
        )
        rows[2] = replace(rows[2], group=FINE_TUNED)
        found = {one["row"]: one for one in run_table(context, Table("t", "", rows), rows, results)}
        assert found["tuned"]["versus_best"]["zero_shot"]["P@1"]["difference"] == -50.0
        assert found["tuned"]["versus_default"]["zero_shot"]["P@1"]["difference"] == -100.0
        assert not any("versus_best" in found[name] for name in ("base", BEST, "frozen"))

    def test_rows_are_compared_with_a_default_that_runs_later(self, context, tmp_path):
        done, results = [], Results(tmp_path / "r.jsonl")
        rows = fake_rows(done, VALUES)
        table = Table("t", "", rows)
        assert "versus_default" not in run_table(context, table, rows[2:], results)[0]
        run_table(context, table, rows, results)
        assert results.records()[0]["versus_default"]["zero_shot"]["P@1"]["difference"] == -75.0
        assert len(done) == 4


@pytest.fixture
def other_code(monkeypatch):
    """Call it, and the present code is another one: a file of the model has changed."""

    def change():
        files = {**code_version._running_files(), "irene/irene.py": "changed"}
        monkeypatch.setattr(code_version, "_running_files", lambda: files)

    return change


class TestCode:
    def test_a_line_names_its_code_data_seed_time_and_command(self, world, tmp_path):
        context = Context(
            world.dataset,
            CONFIG.model_copy(update={"seed": 7}),
            folder=tmp_path,
            encoder=world.encoder,
            arguments="world --seed 7",
        )
        rows = fake_rows([], {"the base": [1.0]})
        [record] = run_table(context, Table("t", "", rows), rows, Results(tmp_path / "r.jsonl"))
        assert record["source_digest"] == source_digest(MODEL_SOURCES)
        assert record["commit"] == code_version.running_commit()
        assert record["fingerprint"] == world.dataset.fingerprint
        assert record["seed"] == 7
        assert record["seconds"]["row"] >= 0
        assert record["command"] == "metaxc bench t world --seed 7 --rows 'the base'"

    def test_a_row_of_other_code_is_run_again_and_one_that_does_not_depend_on_it_is_not(
        self, context, tmp_path, other_code
    ):
        done, results, lines = [], Results(tmp_path / "r.jsonl"), []
        first, second = fake_rows(done, {"model": [1.0], "terms": [1.0]})
        rows = [first, replace(second, sources=("metrics.py",))]
        table = Table("t", "", rows)
        before, _ = run_table(context, table, rows, results)
        other_code()
        after, _ = run_table(context, table, rows, results, report=lines.append)
        assert done == ["model", "terms", "model"]
        assert lines[0] == "model: the result file has it from other code; it is run again"
        assert before["source_digest"] != after["source_digest"]
        run_table(context, table, rows, results)
        assert len(done) == 3

    def test_a_row_without_a_digest_is_run_again(self, context, tmp_path):
        done, results = [], Results(tmp_path / "r.jsonl")
        rows = fake_rows(done, {"model": [1.0]})
        table = Table("t", "", rows)
        run_table(context, table, rows, results)
        old = json.loads(results.path.read_text())
        del old["source_digest"]
        results.path.write_text(json.dumps(old) + "\n")
        run_table(context, table, rows, results)
        assert done == ["model", "model"]

    def test_rows_of_other_code_are_kept_on_request_and_compared_with_nothing_new(
        self, context, tmp_path, other_code
    ):
        done, results, lines = [], Results(tmp_path / "r.jsonl"), []
        rows = fake_rows(done, {"base": [100.0] * 40, "worse": [0.0] * 40})
        table = Table("t", "", rows)
        run_table(context, table, rows[1:], results)
        other_code()
        run_table(context, table, rows[:1], results)
        [kept] = run_table(context, table, rows[1:], results, rerun="none", report=lines.append)
        assert done == ["worse", "base"]
        assert lines == ["worse: already in the result file, measured with other code"]
        assert "versus_default" not in kept
        [kept] = run_all(context, [Table("t", "", rows[1:])], results, rerun="none")
        assert "versus_default" not in kept

    def test_a_row_is_not_compared_with_a_default_of_other_code(self, context, tmp_path, other_code):
        results = Results(tmp_path / "r.jsonl")
        rows = fake_rows([], {"base": [100.0] * 40, "worse": [0.0] * 40})
        table = Table("t", "", rows)
        run_table(context, table, rows[:1], results)
        other_code()
        assert "versus_default" not in run_table(context, table, rows[1:], results)[0]
        run_table(context, table, rows[:1], results)
        assert "versus_default" in run_table(context, table, rows[1:], results)[0]

    def test_models_of_other_code_are_not_used(self, context, other_code):
        folders = context.folder / "models"
        assert context.default is not None
        before = set(folders.iterdir())
        encoders = context.irene(CONFIG).encoder_cache
        other_code()
        assert context.irene(CONFIG).encoder_cache != encoders
        context.model(CONFIG)
        assert len(set(folders.iterdir())) == len(before) + 1


class TestAll:
    def test_the_cheapest_rows_come_first_and_a_shared_model_counts_once(self):
        shared = SharedModel("shared", 100.0)

        def row(name, cost, *uses):
            return Row(name, "g", lambda context: RowResult({}), lambda context: {}, cost=cost, uses=uses)

        first = Table(
            "first", "", [row("default", 5, shared), row("a", 1, shared), row("b", 90), row("c", 3)]
        )
        second = Table("second", "", [row("d", 50), row("e", 20, shared)])
        steps = [(step.table.name, step.row.name, step.cost) for step in plan_rows([first, second])]
        assert steps == [
            ("first", "c", 3),
            ("first", "b", 90),
            ("first", "a", 101),
            ("first", "default", 5),
            ("second", "e", 20),
            ("second", "d", 50),
        ]

    def test_every_row_of_every_table_is_planned_once(self):
        tables = [get_table(name) for name in TABLES]
        steps = plan_rows(tables)
        assert sorted((step.table.name, step.row.name) for step in steps) == sorted(
            (table.name, row.name) for table in tables for row in table.rows
        )
        main = [step.row.name for step in plan_rows([get_table("main")])]
        assert main[:3] == ["bare encoder", "TF-IDF", "BM25"]
        assert main[-3:] == ["IRENE as in the paper", "IRENE as in the paper (frozen)", "metaxc --size best"]
        assert main.index("BM25") < main.index("metaxc") < main.index("IRENE as in the paper")

    def test_all_rows_run_and_a_second_run_resumes(self, context, tmp_path):
        done, results, lines = [], Results(tmp_path / "r.jsonl"), []
        rows = fake_rows(done, VALUES, crashes=["worse"], fails=["last"])
        costs = dict(zip(VALUES, (4.0, 1.0, 2.0, 3.0), strict=True))
        rows = [replace(row, cost=costs[row.name]) for row in rows]
        tables = [Table("t", "", rows[:3]), Table("u", "", rows[3:])]
        ticks = iter(range(0, 6000, 60))
        found = run_all(context, tables, results, report=lines.append, clock=lambda: float(next(ticks)))
        assert done == ["same", "worse", "base", "last"]
        assert [record.get("failed", "") for record in found][0::2] == ["", ""]
        assert found[1]["failed"].startswith(
            "ZeroDivisionError: an unforeseen mistake (test_running.py, line "
        )
        assert "It went wrong" in found[3]["failed"]
        assert [record["row"] for record in read_records(results.path)][:4] == done
        # "same" was run before the default, and is compared with it in the end
        assert found[0]["versus_default"]["zero_shot"]["P@1"]["difference"] == 0.0
        assert results.find_default(found[0])["row"] == "base"
        assert lines[0] == "[1/4] t, same: 1.0 min elapsed, time left unknown"
        # a row of cost 1 took one minute of the clock: 2 + 4 + 3 are left
        assert lines[2] == "[2/4] t, worse: 3.0 min elapsed, about 9.0 min left"
        lines.clear()
        run_all(context, tables, results, report=lines.append)
        assert done == ["same", "worse", "base", "last", "worse", "last"]
        assert sum("already in the result file" in line for line in lines) == 2

    def test_a_row_whose_settings_cannot_be_read_fails_and_the_others_run(self, context, tmp_path):
        done, results = [], Results(tmp_path / "r.jsonl")
        first, second = fake_rows(done, {"missing": [1.0], "there": [1.0]})

        def settings(context):
            raise DataError("The encoder is not on this machine")

        found = run_all(context, [Table("t", "", [replace(first, settings=settings), second])], results)
        assert "not on this machine" in found[0]["failed"]
        assert done == ["there"]
        assert "failed" not in found[1]
