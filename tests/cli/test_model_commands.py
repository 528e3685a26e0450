"""What a trained model answers on the command line, with the exposure of novel items."""

import json

import numpy as np
import pytest
from commands import run
from world_model import build_model

from metaxc.emmett import Calibration, Emmett


@pytest.fixture(scope="module")
def model(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    build_model(world, calibration=Calibration(novelty_prior=3.0, exposure=0.1)).save(folder)
    return folder


@pytest.mark.parametrize("exposure", [None, -0.5, 2.0])
def test_search_with_an_exposure_agrees_with_the_library(model, exposure):
    options = () if exposure is None else ("--exposure", exposure)
    printed = json.loads(run("search", model, "t0", "t4", "-k", 5, "--json", *options).stdout)
    library = Emmett.load(model).search(["t0", "t4"], 5, exposure=exposure)
    assert [[hit["id"] for hit in one["hits"]] for one in printed["answers"]] == [
        [hit.id for hit in hits] for hits in library
    ]


def test_represented_queries_end_with_the_exposure(model, tmp_path):
    [line] = run("represent", model, "--queries", "t0").stdout.splitlines()
    assert json.loads(line)["vector"][-1] == pytest.approx(0.1)
    run("represent", model, "--queries", "--exposure", "-0.25", "t0", "--out", tmp_path / "v.npy")
    np.testing.assert_allclose(
        np.load(tmp_path / "v.npy"), Emmett.load(model).encode_queries(["t0"], -0.25), atol=1e-6
    )


def test_items_have_no_exposure_and_a_huge_one_is_refused(model):
    assert "--queries" in str(run("represent", model, "--exposure", "0.3", "i4").exception)
    for command in (("search", model, "t0"), ("represent", model, "--queries", "t0")):
        assert "from -100 to 100" in str(run(*command, "--exposure", "101").exception)
