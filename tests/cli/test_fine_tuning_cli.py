"""--fine-tuning: how many steps, or none at all; the evaluation shows the bare encoder either way."""

import json

import pytest
from commands import run

from metaxc.evaluation.searches import BARE_ENCODER


@pytest.mark.parametrize(("given", "steps"), [("0", []), ("3", [0, 1, 2, 3])])
def test_it_says_how_many_steps(given, steps, shop_folder, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("metaxc.data.folds.FEWEST_QUERIES", 3)
    monkeypatch.setattr("metaxc.data.folds.FEWEST_ITEMS", 1)
    options = ("--base", tiny, "--epochs", "1", "--fine-tuning", given, "--threads", "1")
    done = run("train", shop_folder, "--out", tmp_path / "model", *options, "--json")
    assert done.exit_code == 0
    assert [step for step, _ in json.loads(done.stdout)["fine_tuning"]] == steps
    shown = json.loads(run("evaluate", tmp_path / "model", shop_folder, "--json").stdout)["baselines"]
    assert BARE_ENCODER in shown
