"""The exposure of novel items in `metaxc train` and `metaxc evaluate`."""

import json

import numpy as np
import pytest
from commands import run

from metaxc.data import write_folder
from metaxc.emmett import read_about
from metaxc.evaluation import exposure_curve
from metaxc.evaluation.exposure import format_exposure

TRAIN = ("--encoder", "vectors", "--folds", 2, "--threads", 1)


@pytest.fixture(scope="module")
def data(world, tmp_path_factory):
    """A folder whose vectors know everything: an item lies among the queries that click it. All five items of a group
    are relevant, one of them is novel, and the encoder alone has it first for some of the queries."""
    folder = tmp_path_factory.mktemp("exposure") / "data"
    write_folder(world.dataset, folder)
    train, test = world.dataset.train, world.dataset.test
    queries = world.encoder.encode_queries(train.queries.texts)
    noise = np.random.default_rng(1).normal(size=(len(world.dataset.items), queries.shape[1]))
    np.save(folder / "vectors.queries.train.npy", queries)
    np.save(folder / "vectors.queries.test.npy", world.encoder.encode_queries(test.queries.texts))
    np.save(folder / "vectors.items.npy", np.repeat(queries[::20], 5, axis=0) + 0.03 * noise)
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """The model folder, and what training printed."""
    folder = tmp_path_factory.mktemp("models") / "model"
    result = run("train", data, "--out", folder, *TRAIN)
    assert result.exit_code == 0
    return folder, result


@pytest.fixture(scope="module")
def exposed(data, tmp_path_factory):
    """The same for an exposure of 0.6, about what the classifiers add to the scores of observed items here."""
    folder = tmp_path_factory.mktemp("models") / "exposed"
    result = run("train", data, "--out", folder, *TRAIN, "--exposure", 0.6)
    assert result.exit_code == 0
    return folder, result


def evaluate(trained, data, *options):
    return run("evaluate", trained[0], data, "--threads", 1, *options)


class TestTrain:
    def test_the_curve_around_the_chosen_exposure_is_printed(self, trained):
        folder, result = trained
        curve = exposure_curve(read_about(folder))
        lines = result.stdout.splitlines()
        rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line[:1] == "│"]
        assert len(rows) == 5
        assert "┃ exposure ┃   P@1 ┃  R@10 ┃ novel R@10 ┃" in result.stdout
        (chosen,) = (point for point in curve if point["chosen"])
        metrics = [f"{chosen[name]:.1f}" for name in ("P@1", "R@10", "novel R@10")]
        assert [format_exposure(chosen["exposure"]), *metrics, "chosen"] in rows
        assert sum("chosen" in row for row in rows) == 1
        near = [point["exposure"] for point in curve]
        first = [format_exposure(value) for value in near].index(rows[0][0])
        assert [row[0] for row in rows] == [format_exposure(value) for value in near[first : first + 5]]
        assert "train with --exposure, or" in result.stdout
        assert "--exposure-cost" in result.stdout
        assert "exposure= without training" in result.stdout

    def test_options_reach_the_configuration(self, data, tmp_path):
        options = ("--exposure", 0, "--exposure-cost", 2.5, "--json")
        printed = json.loads(run("train", data, "--out", tmp_path / "m", *TRAIN, *options).stdout)
        assert printed["config"]["exposure"] == 0
        assert printed["config"]["exposure_cost"] == 2.5
        assert printed["constants"]["exposure"] == 0
        assert [point["exposure"] for point in printed["exposure_curve"] if point["chosen"]] == [0]
        refused = run("train", data, "--out", tmp_path / "n", *TRAIN, "--exposure-cost", -1)
        assert "Invalid value for --exposure-cost" in str(refused.exception)

    def test_an_exposure_that_was_given_is_called_given(self, exposed):
        assert " 0.6 │ 100.0 │ 100.0 │      100.0 │ given │" in exposed[1].stdout
        assert "chosen" not in exposed[1].stdout

    def test_no_curve_is_explained(self, data, tmp_path):
        none = run("train", data, "--out", tmp_path / "m", *TRAIN, "--folds", 0)
        assert none.stdout == ""
        assert "The model has no exposure curve: its constants were not chosen" in none.stderr

    def test_the_help_text_is_the_configurations(self):
        shown = " ".join(run("train", "--help").stdout.split())
        assert "--exposure <float> Added to the score of an item without clicks" in shown
        assert "that may be given up to find novel items; on large data 60 % more for each point" in shown


class TestEvaluate:
    def test_another_exposure_is_evaluated_and_named(self, trained, data):
        own = json.loads(evaluate(trained, data, "--json").stdout)
        assert own["exposure"] == read_about(trained[0])["constants"]["exposure"]
        high = json.loads(evaluate(trained, data, "--json", "--exposure", 5).stdout)
        assert high["exposure"] == 5
        assert high["generalized"]["novel_share"] == 100
        assert high["generalized"]["observed"]["R@10"] == 0
        assert high["zero_shot"] == own["zero_shot"], "the exposure does not change the order of novel items"
        same = json.loads(evaluate(trained, data, "--json", "--exposure", own["exposure"]).stdout)
        assert same["generalized"] == own["generalized"]

    def test_a_loss_of_propensity_scored_precision_is_explained(self, exposed, data):
        printed = json.loads(evaluate(exposed, data, "--json", "--exposure", -5).stdout)
        found = printed["generalized"]["propensity"]
        alone = printed["baselines"]["vectors encoder alone"]["generalized"]["PSP@1"]
        assert found["baseline"] == "vectors encoder alone"
        assert found["baseline PSP@1"] == alone
        assert found["PSP@1"] == printed["generalized"]["PSP@1"]
        assert found["relative_difference"] == pytest.approx(100 * found["PSP@1"] / alone - 100)
        assert found["relative_difference"] < -10
        assert found["below"] is True
        curve = [point["exposure"] for point in exposure_curve(read_about(exposed[0]))]
        assert [point["exposure"] for point in found["exposures"]] == curve
        enough = [point for point in found["exposures"] if point["PSP@1"] >= 0.9 * alone]
        first = enough[0]["exposure"]
        assert 0 < len(enough) < len(curve)
        assert found["restored_by"] == first, "the nearest to -5"
        text = evaluate(exposed, data, "--exposure", -5).stdout
        (line,) = (line for line in text.splitlines() if line.startswith("Generalized PSP@1 is"))
        assert line.startswith(f"Generalized PSP@1 is {found['PSP@1']:.1f} at exposure -5, ")
        assert f"{-found['relative_difference']:.0f} % below the vectors encoder alone ({alone:.1f})" in line
        assert f"Exposure {format_exposure(first)} restores it to {enough[0]['PSP@1']:.1f}" in line

        restored = json.loads(evaluate(exposed, data, "--json", "--exposure", first).stdout)["generalized"]
        assert restored["PSP@1"] == enough[0]["PSP@1"]
        assert restored["propensity"]["below"] is False
        assert restored["propensity"]["exposures"] == []
        assert "Generalized PSP@1 is" not in evaluate(exposed, data, "--exposure", first).stdout

    def test_no_exposure_of_the_curve_restores_it(self, trained, data):
        printed = json.loads(evaluate(trained, data, "--json").stdout)["generalized"]["propensity"]
        assert (printed["below"], printed["restored_by"], len(printed["exposures"])) == (True, None, 15)
        assert "None of the 15 exposures of the model's curve restores it" in evaluate(trained, data).stdout

    def test_without_baselines_there_is_nothing_to_compare_with(self, trained, data):
        printed = json.loads(evaluate(trained, data, "--json", "--no-baselines").stdout)
        assert "propensity" not in printed["generalized"]

    def test_an_exposure_that_is_no_number(self, trained, data):
        assert "exposure is out of range" in str(evaluate(trained, data, "--exposure", "nan").exception)
