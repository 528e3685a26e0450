"""Capacity planning: the estimate agrees with what was measured, and says what fits."""

import json
from pathlib import Path

import numpy as np
import pytest

from metaxc.data import read_folder
from metaxc.data.synthetic import SyntheticConfig, write_synthetic
from metaxc.errors import ConfigError
from metaxc.irene import SIZES, Irene, IreneConfig
from metaxc.scale import Workload, check_memory, make_plan
from metaxc.scale.learning_costs import FINE_TUNED_PAIR_SECONDS
from metaxc.scale.planning import describe_what_fits, smaller_plans

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "scale.json"
FAST = IreneConfig(**SIZES["fast"])
MILLION = Workload(1_000_000, 900_000, 1_050_000, 3_800_000)
PAPER = Workload(1_300_000, 1_170_000, 2_200_000, 40_000_000)


def measured_rows():
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    return [row for row in rows if row["train"] == ["--size", "fast"]]


@pytest.mark.parametrize("row", measured_rows(), ids=lambda row: f"{row['items']:,} items")
def test_the_estimate_of_memory_is_right_within_a_fifth(row):
    written = row["written"]
    workload = Workload(
        row["items"], row["items"] - written["novel"], written["train queries"], written["train clicks"]
    )
    plan = make_plan(workload, FAST)
    assert row["peak_gb"] / 1.2 <= plan.peak.memory / 1e9 <= 1.2 * row["peak_gb"]
    measured = {name: stage["peak_gb"] for name, stage in row["stages"].items()}
    for stage in plan.stages:  # what malloc keeps of an earlier stage differs from run to run
        assert stage.memory / 1e9 == pytest.approx(measured[stage.name], rel=0.35), stage.name
    assert plan.model == pytest.approx(row["model_bytes"], rel=0.1)


def test_what_grows_with_the_data():
    """A small fold more holds its embeddings, classifiers and candidates, a large one waits in files; twice the data,
    twice the arrays."""
    row = 4 * 384
    small = Workload(110_000, 100_000, 120_000, 400_000)
    for workload, arrays in ((small, 3 * small.observed), (MILLION, 0)):
        three, two = (
            make_plan(workload, FAST.model_copy(update={"folds": folds})).peak.memory for folds in (3, 2)
        )
        kept = min(300_000, workload.queries)
        assert row * arrays < three - two < row * (arrays + kept) + 240 * workload.observed + 1
    twice = Workload(*(2 * count for count in (1_000_000, 900_000, 1_050_000, 3_800_000)))
    growth = make_plan(twice, FAST).peak.memory - make_plan(MILLION, FAST).peak.memory
    assert growth == pytest.approx(make_plan(MILLION, FAST).peak.memory, rel=0.2)
    narrow = Workload(1_000_000, 900_000, 1_050_000, 3_800_000, dim=192)
    assert make_plan(narrow, FAST).peak.memory < 0.65 * make_plan(MILLION, FAST).peak.memory
    seconds = [make_plan(one, FAST).seconds for one in (MILLION, twice)]
    assert seconds[1] / seconds[0] == pytest.approx(2, rel=0.1)  # neighbours through the index
    half, whole = Workload(50_000, 45_000, 60_000, 200_000), Workload(100_000, 90_000, 120_000, 400_000)
    fewer = [make_plan(one, FAST).seconds for one in (half, whole)]
    assert fewer[1] / fewer[0] > 2  # all pairs of items, until there is an index
    assert make_plan(MILLION, IreneConfig()).peak.memory > 1.3 * make_plan(MILLION, FAST).peak.memory


def test_no_folds_and_no_expansion_need_no_memory_for_them():
    plain = make_plan(MILLION, FAST.model_copy(update={"folds": 0, "expansion_queries": 0}))
    stages = {stage.name: stage for stage in plain.stages}
    assert stages["tune"].memory < 2e9
    assert stages["tune"].seconds == 0
    assert plain.peak.name == "index"


def test_what_fits_is_the_first_option_that_does():
    frozen = make_plan(PAPER, IreneConfig(fine_tuning=None))
    smallest = ["--size fast", "--size fast --folds 0 --expansion-queries 0"]
    assert [option for option, _ in smaller_plans(frozen)] == ["--folds 2", "--folds 1", *smallest]
    plan = make_plan(PAPER, IreneConfig())
    assert [option for option, _ in smaller_plans(plan)] == ["--folds 2", "--folds 1", *smallest]
    small = make_plan(Workload(2_000, 1_800, 5_000, 20_000), IreneConfig())
    assert small.peak.name == "fine-tune"
    option, smaller = next(smaller_plans(small))
    assert option == "--fine-tuning 0"
    assert smaller.peak.memory < small.peak.memory - 1e9
    for option, smaller in smaller_plans(plan):
        assert describe_what_fits(plan, smaller.peak.memory / 0.95 + 1).startswith(f"{option} fits")
    nothing = describe_what_fits(plan, 4e9)
    assert nothing.startswith("with these options about ")
    items = int(nothing.split()[4].replace(",", ""))
    for count, fits in ((items, True), (int(1.02 * items), False)):
        part = Workload(
            *(int(count * one / 1_300_000) for one in (1_300_000, 1_170_000, 2_200_000, 40_000_000))
        )
        assert (make_plan(part, IreneConfig()).peak.memory <= 0.95 * 4e9) == fits
    assert describe_what_fits(plan, 1e8).startswith("nothing fits")


def test_a_machine_that_is_too_small_is_refused_with_what_would_fit():
    plan = make_plan(PAPER, IreneConfig())
    check_memory(plan, plan.peak.memory / 0.95 + 1)
    with pytest.raises(
        ConfigError, match=r"too little memory(.|\n)*24\.0 GB(.|\n)*fits(.|\n)*--ignore-memory"
    ):
        check_memory(plan, 24e9)


def test_the_workload_of_a_data_set_is_what_is_learnt_from(tmp_path):
    counts = write_synthetic(tmp_path, SyntheticConfig(items=200, queries=300, clicks=900))
    data = read_folder(tmp_path)
    clicked = np.bincount(data.train.clicks.indices, minlength=200) > 0
    assert Workload.of(data, 64) == Workload(
        200, int((clicked & ~data.novel_mask).sum()), counts["train queries"], counts["train clicks"], 64
    )


class TestLearnedParts:
    def seconds(self, queries, **options):
        workload = Workload(20_000, 18_000, queries, 3 * queries)
        plan = make_plan(workload, Irene.paper(**options).config)
        return {stage.name: stage.seconds - 3e-5 * queries for stage in plan.stages}

    def test_the_papers_training_is_bounded_however_many_queries(self):
        few, many, more = (self.seconds(queries) for queries in (5_000, 1_000_000, 4_000_000))
        for stage in ("classifiers", "generator"):
            assert few[stage] < many[stage]
            assert many[stage] == pytest.approx(more[stage])
        # 4,000 steps of 512 queries and about 5,632 items, 1,500 steps of 640 items
        assert many["classifiers"] == pytest.approx(4_000 * 512 * 5_632 * 6e-8)
        assert many["generator"] == pytest.approx(1_500 * 640 * 6e-4)

    def test_the_papers_encoder_is_trained_and_embeds_all_texts_once(self):
        trained, frozen = self.seconds(50_000), self.seconds(50_000, fine_tuning=None)
        assert frozen.get("fine-tune") is None
        assert trained["fine-tune"] > 0
        assert trained["encode"] == frozen["encode"]

    def test_closed_forms_take_no_steps(self):
        workload = Workload(20_000, 18_000, 100_000, 300_000)
        plan = make_plan(workload, IreneConfig())
        seconds = {stage.name: stage.seconds for stage in plan.stages}
        assert seconds["classifiers"] == seconds["generator"] == pytest.approx(3.0)

    @pytest.mark.parametrize("number", ["bfloat16", "float32"])
    def test_fine_tuning_is_a_stage_of_its_own_and_two_passes(self, number, monkeypatch):
        monkeypatch.setattr("metaxc.scale.learning_costs._number_type", lambda: number)
        workload = Workload(20_000, 18_000, 12_800, 50_000)
        best, default = (make_plan(workload, IreneConfig(**SIZES[name])) for name in ("best", "default"))
        frozen = make_plan(workload, IreneConfig(fine_tuning=None))
        stages = {stage.name: stage for stage in best.stages}
        assert "fine-tune" not in {stage.name for stage in frozen.stages}
        assert stages["fine-tune"].seconds == pytest.approx(2 * 3 * 12_800 * FINE_TUNED_PAIR_SECONDS[number])
        assert stages["fine-tune"].memory > 3e9
        assert best.seconds > default.seconds > frozen.seconds
        fast = dict(smaller_plans(best))["--size fast"]
        assert "fine-tune" not in {stage.name for stage in fast.stages}
