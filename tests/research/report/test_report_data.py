"""Learning curves, warnings, and rows of other systems."""

from copy import copy

import pytest

from metaxc.emmett.training_record import TrainingRecord
from metaxc.errors import DataError
from metaxc.evaluation import find_overlap
from metaxc.research.report import read_bench_rows
from metaxc.research.report.report_data import (
    LearningCurve,
    build_bench_tables,
    find_warnings,
    learning_curves,
)


def test_learning_curves_where_the_model_has_them():
    about = {
        "curves": {
            "encoder": {"loss": [3.0, 2.0, float("nan")], "step": [10, 20, 30]},
            "generator": {"loss": []},
        },
    }
    assert learning_curves(about) == [LearningCurve("encoder", [10, 20], [3, 2])]
    assert learning_curves({}) == []
    (long,) = learning_curves({"curves": {"generator": {"loss": list(range(1000))}}})
    assert len(long.loss) == 200
    assert (long.step[0], long.step[-1], long.loss[-1]) == (1, 1000, 999)


def test_a_model_of_another_split_gives_warnings(world, model):
    model = replace_record(model, TrainingRecord.of(world.dataset))
    assert find_warnings(model, world.dataset, find_overlap(model, world.dataset)) == []
    novel = world.dataset.novel_mask.copy()
    novel[:2] = True
    changed = world.dataset.with_novel(novel)
    other, observed = find_warnings(model, changed, find_overlap(model, changed))
    assert "different data" in other
    assert observed.startswith("The model was trained on 2 of 42 novel items")
    unknown = replace_record(model, None)
    (warning,) = find_warnings(unknown, world.dataset, find_overlap(unknown, world.dataset))
    assert "no record" in warning


def replace_record(model, record):
    other = copy(model)
    other.trained_on = record
    return other


class TestBench:
    LINE = '{"table": "main", "row": "BM25", "data": "d", "metrics": {"zero_shot": {"P@1": 1.5, "odd": 2}}, "x": 1}\n'

    def test_rows_become_tables(self, tmp_path):
        (tmp_path / "a.jsonl").write_text(self.LINE + "\n")
        again = self.LINE.replace("1.5", "2.5").replace('"x": 1', '"seconds": {"fit": 3}')
        (tmp_path / "b.jsonl").write_text(self.LINE.replace("BM25", "other") + again)
        (table,) = build_bench_tables(read_bench_rows([tmp_path / "a.jsonl", tmp_path / "b.jsonl"]))
        assert (table.setting, table.metrics, table.stages) == ("zero_shot", ["P@1"], ["fit"])
        assert [(r.row, r.metrics["zero_shot"]["P@1"]) for r in table.rows] == [("BM25", 2.5), ("other", 1.5)]
        assert table.best("P@1") == 2.5

    @pytest.mark.parametrize("line", ["{", "[]", '{"table": "t", "row": "r", "data": "d", "metrics": 3}'])
    def test_an_invalid_line_is_named(self, line, tmp_path):
        (tmp_path / "a.jsonl").write_text(self.LINE + line + "\n")
        with pytest.raises(DataError, match=r"a\.jsonl, line 2"):
            read_bench_rows([tmp_path / "a.jsonl"])
        with pytest.raises(DataError, match="cannot be read"):
            read_bench_rows([tmp_path / "none.jsonl"])
