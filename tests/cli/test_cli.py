"""The command, as a user types it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from commands import run

from metaxc import Emmett
from metaxc.cli import main
from metaxc.data import Dataset, read_folder, split, write_folder
from metaxc.emmett import read_about
from metaxc.errors import DataError


def shell(*args, **kwargs):
    """Run as a process of its own."""
    code = "from metaxc.cli.main import run; run()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, check=False, **kwargs
    )


@pytest.fixture(scope="module")
def data(shop_folder):
    return shop_folder


@pytest.fixture(scope="module")
def model(shop_training):
    folder, result = shop_training
    facts = json.loads(result.stdout)
    assert facts["seconds"] > 0
    assert {"tune", "encoder", "classifiers", "neighbours", "generator", "index"} <= facts["stages"].keys()
    assert not folder.with_name("model.stages").exists()
    return folder


def test_evaluate_prints_one_object(model, data):
    printed = json.loads(run("evaluate", model, data, "--baseline", "encoder", "--json").stdout)
    assert {"P@1", "P@3", "P@5", "R@10", "R@100", "nDCG@10", "PSP@1"} <= printed["zero_shot"].keys()
    assert printed["zero_shot"]["R@1"] > printed["baseline"]["zero_shot"]["R@1"] + 20
    assert 0 <= printed["generalized"]["P@1"] <= 100
    low, high = printed["intervals"]["generalized"]["P@1"]
    assert low <= printed["generalized"]["P@1"] <= high
    assert "divides by k" in printed["conventions"]


def test_evaluate_compares_with_the_encoder_unless_told_not_to(model, data):
    printed = json.loads(run("evaluate", model, data, "--json").stdout)
    assert list(printed["baselines"]) == ["static encoder alone"], "a static encoder has no pretrained base"
    assert "baseline" not in printed
    mixed, alone = printed["generalized"], printed["baselines"]["static encoder alone"]
    for result in (mixed, alone["generalized"]):
        assert result["novel"].keys() == result["observed"].keys() == {"P@1", "R@10", "queries"}
        assert 0 <= result["H"] <= 100
        assert 0 <= result["novel_share"] <= 100
    dataset = read_folder(data)
    clicks = dataset.test.clicks[:, dataset.novel_rows]
    assert mixed["by_clicks"]["0"]["pairs"] == clicks.nnz
    assert mixed["by_clicks"]["0"]["items"] == len(np.unique(clicks.indices))
    low, high = printed["intervals"]["generalized"]["H"]
    assert low <= mixed["H"] <= high
    difference = alone["model_minus_baseline"]["novel"]["R@10"]
    expected = mixed["novel"]["R@10"] - alone["generalized"]["novel"]["R@10"]
    assert difference["difference"] == pytest.approx(expected)
    assert difference["below"] is (difference["high"] < 0)
    assert json.loads(run("evaluate", model, data, "--no-baselines", "--json").stdout)["baselines"] == {}


def test_evaluate_on_some_of_the_test_queries(model, data):
    dataset = read_folder(data)
    result = run("evaluate", model, data, "--no-baselines", "--test-queries", "7", "--json")
    assert "evaluating on 7 of the test queries" in result.stderr
    assert len(dataset.test) > 7
    printed = json.loads(result.stdout)["generalized"]
    counted = printed["novel"]["queries"], printed["observed"]["queries"]
    assert max(counted) <= 7
    assert sum(counted) >= 7


def test_evaluate_prints_tables_for_people(model, data):
    printed = run("evaluate", model, data).stdout
    titles = (
        "Zero-shot",
        "Generalized",
        "Novel and observed items in the same ranking",
        "Recall at 10 by training clicks",
    )
    assert all(title in printed for title in titles)
    lines = [line for line in printed.splitlines() if "encoder alone" in line and "│" in line]
    assert len(lines) == 4, "one row in each table"
    for name in ("0", "1-2", "3-4", "5-9", "10-29", "30-99", "100+"):
        assert f" {name} " in printed
    assert "encoder alone" not in run("evaluate", model, data, "--no-baselines").stdout


def test_any_baseline_stands_beside_the_model(model, data):
    """Names are those of the tables, without regard to case and hyphens."""
    command = (
        "evaluate",
        model,
        data,
        "--no-baselines",
        "--baseline",
        "bm25",
        "--baseline",
        "TF-IDF",
        "--json",
    )
    printed = json.loads(run(*command).stdout)
    assert list(printed["baselines"]) == ["BM25", "TF-IDF"]
    bm25 = printed["baselines"]["BM25"]
    assert bm25["zero_shot"]["R@10"] < printed["zero_shot"]["R@10"], "no word of a query is in an item"
    assert bm25["model_minus_baseline"]["zero_shot"]["R@10"]["difference"] > 0
    assert "baseline" not in printed
    table = run("evaluate", model, data, "--no-baselines", "--baseline", "Neighbour kernel").stdout
    assert "Neighbour kernel" in table
    refused = str(run("evaluate", model, data, "--baseline", "BM26").exception)
    assert "BM26" in refused
    assert "BM25" in refused


def test_search_explain_and_represent_agree_with_the_library(model, tmp_path):
    library = Emmett.load(model)
    printed = json.loads(run("search", model, "fresh bread", "-k", 3, "--json").stdout)
    assert [h["id"] for h in printed["answers"][0]["hits"]] == [
        h.id for h in library.search(["fresh bread"], 3)[0]
    ]
    explained = json.loads(run("explain", model, "huge cat", "--json").stdout)
    assert len(explained["neighbours"]) == library.neighbours
    assert "neighbour" in run("explain", model, library.items.ids[0]).stdout
    told = run("explain", model, "huge cat", "--revealed", library.items.texts[3]).stdout
    assert "brought by" in told
    assert "its own clicks" in told
    assert "query: fresh bread" in run("search", model, "fresh bread").stdout
    (tmp_path / "new.txt").write_text("huge cat\ntiny dog\n")
    run("represent", model, "--file", tmp_path / "new.txt", "--out", tmp_path / "v.npy")
    np.testing.assert_allclose(
        np.load(tmp_path / "v.npy"), library.represent(["huge cat", "tiny dog"]), atol=1e-6
    )
    lines = run("represent", model, "--queries", "fresh bread").stdout.splitlines()
    assert len(json.loads(lines[0])["vector"]) == library.encoder.dim + 1


def test_training_again_from_the_same_inputs_is_skipped_and_from_others_refused(model, data, small):
    before = (model / "manifest.json").stat().st_mtime_ns
    assert "already trained" in run("train", data, "--out", model, *small).stderr
    assert (model / "manifest.json").stat().st_mtime_ns == before
    assert read_about(model)["config"]["folds"] == 3
    other = run("train", data, "--out", model, *small, "--folds", 1)
    assert "other inputs" in str(other.exception)


def test_a_plain_folder_is_split_and_evaluated_on_the_same_split(shop, small, tmp_path):
    write_folder(shop, tmp_path / "plain")
    assert run("train", tmp_path / "plain", "--out", tmp_path / "m", *small, "--novel", 0.2).exit_code == 0
    printed = json.loads(run("evaluate", tmp_path / "m", tmp_path / "plain", "--json").stdout)
    assert printed["counts"]["zero_shot"]["items"] == 16
    other = tmp_path / "other"
    write_folder(split(shop, novel=0.5)[0], other)
    (other / "novel.txt").unlink()
    result = run("evaluate", tmp_path / "m", other, "--json")
    assert "not the one the model was trained on" in str(result.exception)


def files_of(folder):
    """The content of all files. How long training took differs from run to run, and with it the checksum of the file
    that says so, which is compared without it."""
    files = {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}
    config = json.loads(files["config.json"])
    assert config["about"].pop("seconds")["fit"] > 0
    manifest = json.loads(files["manifest.json"])
    del manifest["fingerprint"], manifest["files"]["config.json"]
    return {**files, "config.json": config, "manifest.json": manifest}


def test_killed_at_any_moment_it_ends_with_the_same_model(data, small, tmp_path):
    """kill -9 after the first stage, after the second and after the fourth; start again, until it is done.

    It is compared with a process that nobody kills: in this one the numeric libraries use another number of threads.
    """
    quick, whole = [*map(str, small), "--epochs", "4", "--folds", "2"], tmp_path / "whole"
    assert shell("train", data, "--out", whole, *quick).returncode == 0
    out, stages = tmp_path / "model", tmp_path / "model.stages"
    code = "from metaxc.cli.main import run; run()"
    command = [sys.executable, "-c", code, "train", str(data), "--out", str(out), *quick]
    kills, seen, moments = 0, 0, [1, 2, 4]  # constants, encoder; then embeddings and classifiers
    deadline = time.monotonic() + 300
    while not out.exists() and time.monotonic() < deadline:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            there = 0
            with contextlib.suppress(FileNotFoundError):  # not yet there, or just removed
                there = len([name for name in os.listdir(stages) if not name.startswith(".")])
            if moments and there >= max(moments[0], seen + 1):
                seen = there
                moments.pop(0)
                os.kill(process.pid, signal.SIGKILL)
                kills += 1
                process.wait()
            os.sched_yield()
    assert kills >= 3
    assert files_of(out) == files_of(whole)


def test_a_model_is_served_by_the_backend_it_was_trained_with(data, tiny, tmp_path):
    options = ("--base", tiny, "--epochs", 2, "--folds", 0, "--threads", 1, "--cache", tmp_path / "cache")
    chosen = {}
    for backend in ("auto", "torch"):
        result = run("train", data, "--out", tmp_path / backend, "--backend", backend, *options)
        assert result.exit_code == 0
        chosen[backend] = Emmett.load(tmp_path / backend).encoder.base.backend
        assert f"encode ({chosen[backend]})" in result.stderr
    assert chosen == {"auto": "onnx-int8", "torch": "torch"}
    assert (
        "encode with onnx-int8: cosine"
        in run("train", data, "--out", tmp_path / "again", *options[:-1], tmp_path / "new").stderr
    )
    printed = run(
        "evaluate", tmp_path / "auto", data, "--baseline", "encoder", "--json", *options[-2:]
    ).stdout
    assert json.loads(printed)["baseline"]["counts"]["zero_shot"]["items"] == 12
    refused = run("train", data, "--out", tmp_path / "m", "--backend", "magic", *options)
    assert "Invalid value for --backend" in str(refused.exception)
    assert "onnx-int8" in str(refused.exception)


def test_data_verbs(data, tmp_path, shop):
    write_folder(shop, tmp_path / "plain")
    printed = json.loads(
        run("data", "split", tmp_path / "plain", tmp_path / "s", "--novel", 0.25, "--json").stdout
    )
    assert printed["items_novel"] == 20
    assert read_folder(tmp_path / "s").novel.sum() == 20
    assert json.loads(run("data", "check", tmp_path / "s", "--json").stdout)["ok"] is True
    for form in ("beir", "xc"):
        assert run("data", "convert", tmp_path / "s", tmp_path / form, "--to", form).exit_code == 0
        assert run("data", "convert", tmp_path / form, tmp_path / f"{form}.back").exit_code == 0
        back = read_folder(tmp_path / f"{form}.back")
        assert back.train.clicks.nnz == read_folder(tmp_path / "s").train.clicks.nnz
    (tmp_path / "s" / "clicks.train.tsv").write_text("nobody\tnothing\n")
    broken = run("data", "check", tmp_path / "s")
    assert broken.exit_code == 1
    assert "cannot be used" in broken.stdout


def test_events_are_checked_and_cut_by_time(tmp_path):
    log = Dataset.of(
        {"a": "apple", "b": "bread"},
        {"q": "fruit", "r": "bakery"},
        [("q", "a"), ("r", "b"), ("q", "a"), ("q", "b")],
        times=["2024-04-01", "2024-04-02", "2024-05-01", "2024-05-02"],
        counts=[1, 1, 2, 1],
    )
    write_folder(log, tmp_path / "log")
    checked = run("data", "check", tmp_path / "log").stdout
    assert "train events from 2024-04-01T00:00:00Z to 2024-05-02T00:00:00Z" in checked
    assert "3 train clicks, 5 train events" in checked
    options = ("--by", "time", "--novel", 0.5, "--json")
    for number, cut in enumerate(["2024-05-01", "1714521600"]):
        out = tmp_path / f"cut{number}"
        printed = json.loads(run("data", "split", tmp_path / "log", out, *options, "--cut-at", cut).stdout)
        assert (printed["events_train"], printed["events_test"]) == (2, 3)
        assert (printed["queries_in_both"], printed["query_leaks"]) == (1, 0)
        assert json.loads((out / "split.json").read_text())["cut_at"] == 1714521600
        assert read_folder(out).test.pair_counts.tolist() == [2, 1]
    assert "1 of 1 test queries were asked before the cut too" in run("data", "check", out).stdout


def test_a_split_by_time_is_repeated_or_refused():
    from metaxc.cli.shared import with_split

    clicks = [("q", "a"), ("r", "b"), ("q", "b"), ("r", "a")]
    log = Dataset.of({"a": "x", "b": "y"}, {"q": "u", "r": "v"}, clicks, times=[1, 2, 3, 4])
    how = {"novel": 0.5, "test": 0.25, "by": "time", "seed": 0}
    made, record = with_split(log, how)
    assert record["cut_at"] == 4.0
    assert with_split(log, record)[0].fingerprint == made.fingerprint
    with pytest.raises(DataError, match="cannot be repeated\n  got: a model of an earlier version"):
        with_split(log, {**how, "hash": "of whole queries"})
    with pytest.raises(DataError, match="not the one the model was trained on"):
        with_split(log, {**record, "hash": "of other data"})


def test_assets_out_and_back_and_trained_from(data, model, tmp_path):
    assert run("data", "convert", data, tmp_path / "a", "--to", "assets", "--model", model).exit_code == 0
    assert run("data", "convert", tmp_path / "a", tmp_path / "back").exit_code == 0
    assert read_folder(tmp_path / "back").novel.sum() == read_folder(data).novel.sum()
    options = ("--out", tmp_path / "m", "--encoder", "vectors", "--threads", 1)
    assert run("train", tmp_path / "back", *options).exit_code == 0
    found = json.loads(run("evaluate", tmp_path / "m", tmp_path / "back", "--json").stdout)
    assert found["zero_shot"]["R@10"] > 50
    refused = run("data", "convert", data, tmp_path / "b", "--to", "assets")
    assert "need a model" in str(refused.exception)


class TestErrors:
    """Exit code 2, one clear message, no traceback."""

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["train", "nowhere", "--out", "m"], "nowhere"),
            (["evaluate", "nowhere", "nowhere"], "Not a metaxc folder"),
            (["search", "nowhere", "x"], "Not a metaxc folder"),
            (["data", "get", "moon", "out"], "Unknown data set"),
        ],
    )
    def test_the_message_says_what(self, arguments, words, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["metaxc", *arguments])
        with pytest.raises(SystemExit) as ended:
            main.run()
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert words in said
        assert "Traceback" not in said

    def test_a_process_ends_with_the_message_and_the_code(self, tmp_path):
        result = shell("train", "nowhere", "--out", "m", cwd=tmp_path)
        assert result.returncode == 2
        assert "nowhere" in result.stderr
        assert "Traceback" not in result.stderr

    def test_wrong_options_are_explained(self, data, tmp_path):
        result = run("train", data, "--out", tmp_path / "m", "--encoder", "magic")
        assert "magic" in str(result.exception)
        assert "adapted" in str(result.exception)


def test_help_teaches():
    for verb in (
        [],
        ["train"],
        ["evaluate"],
        ["search"],
        ["explain"],
        ["represent"],
        ["data"],
        ["data", "split"],
        ["bench"],
        ["bench", "main"],
        ["report"],
        ["sync"],
    ):
        result = run(*verb, "--help")
        assert result.exit_code == 0
        assert "Usage" in result.stdout
    assert "metaxc 0" in run("--version").stdout


def test_threads_are_set_for_every_library_and_a_users_own_setting_stays(monkeypatch):
    from metaxc.cli.shared import set_threads

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    set_threads(3)
    assert [os.environ[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")] == ["3", "7"]
    assert torch.get_num_threads() == 3
