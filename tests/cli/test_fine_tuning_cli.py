"""--fine-tuning: how many steps, or none at all; the evaluation shows what a fine-tuned model started from."""

import json
from itertools import count

import pytest
from commands import run

from metaxc.data import read_folder
from metaxc.encoders.training import recipes
from metaxc.errors import ConfigError
from metaxc.evaluation.searches import BARE_ENCODER, FINE_TUNED_ENCODER
from metaxc.irene import Irene


@pytest.mark.parametrize(("given", "steps"), [("0", []), ("3", [0, 1, 2, 3])])
def test_it_says_how_many_steps(given, steps, shop_folder, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("metaxc.data.folds.FEWEST_QUERIES", 3)
    monkeypatch.setattr("metaxc.data.folds.FEWEST_ITEMS", 1)
    options = ("--base", tiny, "--epochs", "1", "--fine-tuning", given, "--threads", "1")
    done = run("train", shop_folder, "--out", tmp_path / "model", *options, "--json")
    assert done.exit_code == 0
    assert [step for step, _ in json.loads(done.stdout)["fine_tuning"]] == steps


@pytest.mark.parametrize("other", [("--size", "fast"), ("--folds", "0")])
def test_where_it_cannot_be_done_the_options_do_not_fit_together(other, shop_folder, tmp_path):
    refused = run("train", shop_folder, "--out", tmp_path / "model", "--fine-tuning", "50", *other).exception
    assert isinstance(refused, ConfigError)
    assert refused.what == "These options do not fit together"
    assert "fine_tuning needs a transformer" in str(refused)
    assert not (tmp_path / "model").exists()


def test_the_evaluation_shows_the_encoder_before_and_after_fine_tuning(
    shop_folder, tiny, tmp_path, monkeypatch
):
    monkeypatch.setattr("metaxc.data.folds.FEWEST_QUERIES", 3)
    better_and_better = count().__next__  # else so small a shop may say that fine-tuning does not help
    monkeypatch.setattr(recipes, "_build_validation", lambda data: lambda encoder: better_and_better())
    how = {"steps": 4, "batch": 16}
    model = Irene(base=str(tiny), fine_tuning=how, adapter={"epochs": 1}).fit(read_folder(shop_folder))
    model.save(tmp_path / "model")
    shown = json.loads(run("evaluate", tmp_path / "model", shop_folder, "--json").stdout)["baselines"]
    assert set(shown) == {"adapted encoder alone", FINE_TUNED_ENCODER, BARE_ENCODER}
