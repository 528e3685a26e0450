"""`metaxc theory` and `metaxc theory-study`, as a user types them."""

import json

import pytest
from commands import run

from metaxc.data import split, write_folder
from metaxc.encoders import EmbeddingCache
from metaxc.irene import Irene, IreneConfig


@pytest.fixture(scope="module")
def place(shop, tiny, tmp_path_factory):
    """A folder with a data set and a small model of 64 dimensions trained on it."""
    folder = tmp_path_factory.mktemp("theory")
    dataset = split(shop, novel=0.15, test=0.2)[0]
    write_folder(dataset, folder / "data")
    config = IreneConfig(encoder="static", base=str(tiny), folds=0, adapter={"epochs": 2})
    Irene(config, cache=EmbeddingCache(folder / "cache")).fit(dataset).save(folder / "model")
    return folder


def test_the_bounds_as_tables(place):
    result = run("theory", place / "model", place / "data", "--draws", 2, "--cache", place / "cache")
    assert result.exit_code == 0, result.output
    for words in (
        "M = N·L, pairs",
        "Cartesian (one-vs-all)",
        "paired",
        "derived",
        "vacuous",
        "the weighted sum",
        "Tightness",
    ):
        assert words in result.stdout


def test_the_bounds_as_json(place):
    options = ("--json", "--draws", 0, "--delta", 0.1, "--kappa", 0, "--cache", place / "cache")
    result = run("theory", place / "model", place / "data", *options)
    found = json.loads(result.stdout)
    assert found["assumed"]["kappa"] == 0
    assert found["assumed"]["delta"] == 0.1
    quantities = found["quantities"]
    assert quantities["pairs"] == quantities["queries"] * quantities["items"]
    assert {term["form"] for term in found["deviations"]} == {"stated", "proof", "derived"}
    assert found["empirical"] == []


def test_a_data_set_too_small_for_a_study_is_an_error(place, tiny):
    options = ("--out", place / "study", "--quick", "--base", tiny, "--backend", "torch")
    result = run("theory-study", place / "data", *options, "--cache", place / "cache")
    assert result.exit_code != 0
    assert "too small for this study" in str(result.exception)


def test_an_unknown_generator_of_a_study_is_an_error(place):
    result = run("theory-study", place / "data", "--out", place / "study", "--generator", "combine")
    assert "transformer or post_norm" in str(result.exception)
