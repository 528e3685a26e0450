"""`metaxc encoder train`, and training a model on what it wrote."""

import json
import subprocess
import sys

import numpy as np
import pytest
from commands import run
from sentence_transformers import SentenceTransformer

from metaxc import Emmett
from metaxc.data import split, write_folder
from metaxc.errors import ConfigError

QUICK = ["--steps", "6", "--batch", "16", "--threads", "1", "--holdout", "0.5"]


@pytest.fixture(scope="module")
def data(shop, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "shop"
    write_folder(split(shop, novel=0.15, test=0.1)[0], folder)
    return folder


@pytest.fixture(scope="module")
def encoder(data, tiny, tmp_path_factory):
    place = tmp_path_factory.mktemp("encoders")
    result = run("encoder", "train", data, "--out", place / "e", "--base", tiny, *QUICK, "--json")
    assert result.exit_code == 0
    facts = json.loads(result.stdout)
    assert facts["recipe"]["recipe"] == "dpr"
    assert len(facts["losses"]) == 6
    assert facts["validation"][-1][0] == 6
    assert facts["cpu_seconds"] > 0
    assert [path.name for path in place.iterdir()] == ["e"]
    return place / "e"


@pytest.mark.parametrize("adapter", ["--adapter", "--no-adapter"])
def test_a_model_is_trained_on_it_with_and_without_the_adapter(adapter, data, encoder, tmp_path):
    result = run(
        "train", data, "--encoder", encoder, adapter, "--out", tmp_path / "m", "--cache", tmp_path / "c"
    )
    assert result.exit_code == 0
    assert "chosen on items it held out" in result.stderr
    model = Emmett.load(tmp_path / "m")
    assert model.encoder.kind == ("adapted" if adapter == "--adapter" else "pretrained")
    if adapter == "--no-adapter":
        texts = ["small cat", "wild goose"]
        expected = SentenceTransformer(str(encoder), device="cpu").encode(texts, normalize_embeddings=True)
        found = model.encoder.encode_items(texts)
        assert (found * expected).sum(axis=1).min() > 0.98  # int8 may replace float32
        assert np.abs(model.encoder.encode_items(texts[:1]) - found[:1]).max() < 1e-3


def test_an_existing_folder_is_replaced_only_with_overwrite(data, encoder, tiny):
    result = run("encoder", "train", data, "--out", encoder, "--base", tiny, *QUICK)
    assert isinstance(result.exception, ConfigError)
    assert "--overwrite" in str(result.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--recipe", "best"], "Invalid value for --recipe"),
        (["--batch", "1"], "Invalid value for --batch"),
        (["--holdout", "1.5"], "Invalid value for --holdout"),
        (["--negatives", "-1"], "Invalid value for --negatives"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_option(words, said, data, tmp_path):
    result = run("encoder", "train", data, "--out", tmp_path / "e", *words)
    assert isinstance(result.exception, ConfigError)
    assert said in str(result.exception)


def test_an_unknown_encoder_and_two_bases_are_errors(data, encoder, tmp_path):
    unknown = run("train", data, "--out", tmp_path / "m", "--encoder", "bertie")
    assert isinstance(unknown.exception, ConfigError)
    assert "sentence-transformers folder" in str(unknown.exception)
    both = run("train", data, "--out", tmp_path / "m", "--encoder", encoder, "--base", encoder)
    assert isinstance(both.exception, ConfigError)
    assert "Two base encoders" in str(both.exception)


def test_help_explains_the_recipes():
    printed = run("encoder", "train", "--help").stdout
    for word in ("dpr", "ance", "ngame", "maclr", "torchrun", "held out"):
        assert word in printed


def test_importing_the_command_loads_neither_torch_nor_numpy():
    code = "import sys; from metaxc.cli import encoder_command; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_query_side_of_a_model_is_exported(data, tiny, tmp_path):
    trained = ["--encoder", tiny, "--backend", "torch", "--cache", tmp_path / "c", "--threads", "1"]
    assert run("train", data, *trained, "--out", tmp_path / "m").exit_code == 0
    result = run(
        "encoder", "export", tmp_path / "m", "--out", tmp_path / "tower", "--exposure", "0.3", "--json"
    )
    record = json.loads(result.stdout)
    assert record["largest_difference"] < 1e-5
    tower = SentenceTransformer(
        str(tmp_path / "tower"), device="cpu", trust_remote_code=record["remote_code"]
    )
    texts = ["cheap lemon", "raw goose"]
    printed = run("represent", tmp_path / "m", "--queries", "--exposure", "0.3", *texts).stdout.splitlines()
    wanted = np.asarray([json.loads(line)["vector"] for line in printed])
    assert tower.encode_query(texts) == pytest.approx(wanted, abs=1e-5)
    again = run("encoder", "export", tmp_path / "m", "--out", tmp_path / "tower")
    assert "--overwrite" in str(again.exception)
    inside = run("encoder", "export", tmp_path / "m", "--out", tmp_path / "m" / "tower")
    assert "inside the source" in str(inside.exception)
