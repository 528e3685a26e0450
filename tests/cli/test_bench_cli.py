"""`metaxc bench`, as a user types it."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from metaxc.cli.bench_command import HELP, app
from metaxc.data import split, write_folder
from metaxc.errors import ConfigError, MetaxcError
from metaxc.research.bench import TABLES, Table, main_table, read_records

FAST = ["--encoder", "pretrained", "--folds", "0", "--threads", "1"]


def run(*args):
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit | MetaxcError):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def data(shop, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "shop"
    write_folder(split(shop, novel=0.15, test=0.2)[0], folder)
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Models and encoders that several tests share."""
    return tmp_path_factory.mktemp("kept")


def test_help_teaches_what_each_table_is_and_costs():
    assert HELP.keys() == TABLES.keys()
    assert "continues an interrupted" in run("--help").stdout
    for name in (*TABLES, "all"):
        printed = run(name, "--help").stdout
        assert "Cost:" in printed
        assert ("--rows" in printed) == (name != "all")


def test_help_needs_nothing_heavy():
    code = "import sys; from metaxc.cli import bench_command; print('torch' in sys.modules, 'scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_list_prints_the_rows():
    lines = run("ablations", "--list").stdout.splitlines()
    assert len(lines) == len(TABLES["ablations"]().rows)
    assert any("K = 6" in line for line in lines)
    for kind in ("", "transformer, "):
        few = json.loads(run("ablations", "--list", "--rows", f"{kind}K = *", "--json").stdout)
        assert [row["row"] for row in few["rows"]] == [f"{kind}K = {k}" for k in (1, 2, 3, 6, 20)]


def test_rows_are_written_found_again_and_compared(data, tmp_path):
    out = tmp_path / "results" / "shop.jsonl"
    command = ["main", data, "--out", out, *FAST]
    assert run(*command, "--rows", "metaxc").exit_code == 0
    first = json.loads(out.read_text())
    assert first["default"] is True
    assert first["data"] == "shop"
    assert (tmp_path / "results" / "shop.work" / "models").is_dir()
    result = run(*command, "--rows", "ADAPTED*", "--rows", "bare encoder", "--json")
    printed = json.loads(result.stdout)
    assert [row["row"] for row in printed["rows"]] == ["adapted encoder alone", "bare encoder"]
    alone, bare = (row["metrics"]["zero_shot"]["R@1"] for row in printed["rows"])
    assert alone == bare < first["metrics"]["zero_shot"]["R@1"] - 10
    assert "P@1" in printed["rows"][1]["versus_default"]["zero_shot"]
    again = run(*command, "--rows", "*encoder", "--rows", "*encoder alone")
    assert again.stderr.count("already in the result file") == 2
    assert "zero-shot P@1" in again.stdout
    assert len(out.read_text().splitlines()) == 3


def test_a_row_that_fails_is_told_and_the_exit_code_is_1(data, kept, tmp_path, monkeypatch):
    def broken(*args):
        raise ConfigError("No oracle today")

    monkeypatch.setattr(main_table, "oracle_vectors", broken)
    out = tmp_path / "r.jsonl"
    result = run(
        "main", data, "--out", out, "--work", kept, *FAST, "--rows", "oracle*", "--rows", "metaxc (*"
    )
    assert result.exit_code == 1
    rows = {row["row"]: row for row in map(json.loads, out.read_text().splitlines())}
    assert "No oracle today" in rows["oracle (adapted)"]["failed"]
    assert rows["metaxc (frozen)"]["metrics"]["zero_shot"]["R@10"] > 0
    assert "2 of 3 rows failed" in result.stderr
    assert "failed" in result.stdout


def test_ablations_oneshot_ratio_and_latency_on_texts(data, kept, tmp_path):
    work = ["--work", kept, *FAST, "--json"]
    printed = json.loads(
        run("ablations", data, "--out", tmp_path / "a.jsonl", "--rows", "K = 3", *work).stdout
    )
    assert printed["rows"][0]["config"]["settings"]["recipe"]["neighbours"] == 3
    printed = json.loads(run("oneshot", data, "--out", tmp_path / "o.jsonl", "--rows", "*of 2", *work).stdout)
    assert [row["row"] for row in printed["rows"]] == ["votes of 2", "evidence of 2", "both of 2"]
    printed = json.loads(
        run("novel-ratio", data, "--out", tmp_path / "n.jsonl", "--rows", "*20 %*", *work).stdout
    )
    assert [row["counts"]["zero_shot"]["items"] for row in printed["rows"]] == [16, 16, 16]
    printed = json.loads(run("latency", data, "--out", tmp_path / "l.jsonl", "--rows", "gen*", *work).stdout)
    assert printed["rows"][0]["metrics"]["single"]["times encoding"] > 0


@pytest.fixture
def few_tables(monkeypatch):
    """Two tables of three cheap rows, one of which fails."""

    def fail(context):
        raise ValueError("No such luck")

    rows = {row.name: row for row in TABLES["main"]().rows}
    first = [rows["BM25"], replace(rows["bare encoder"], cost=1.0)]
    second = replace(rows["TF-IDF"], name="failing", run=fail, cost=0.5)
    for name in list(TABLES):
        monkeypatch.delitem(TABLES, name)
    monkeypatch.setitem(TABLES, "main", lambda: Table("main", "first", first))
    monkeypatch.setitem(TABLES, "ablations", lambda: Table("ablations", "second", [second, rows["TF-IDF"]]))


def test_all_tables_run_resume_and_outlive_a_failure(data, tmp_path, few_tables):
    out = tmp_path / "results"
    command = ["all", data, tmp_path / "missing", "--out", out, *FAST]
    first = run(*command)
    assert first.exit_code == 1
    lines = [json.loads(line) for line in (out / "shop.jsonl").read_text().splitlines()]
    assert [(line["table"], line["row"]) for line in lines] == [
        ("main", "bare encoder"),
        ("main", "BM25"),
        ("ablations", "failing"),
        ("ablations", "TF-IDF"),
    ]
    assert lines[2]["failed"].startswith("ValueError: No such luck")
    assert lines[1]["command"] == "metaxc bench main shop --encoder pretrained --folds 0 --rows BM25"
    assert str(data) not in (out / "shop.jsonl").read_text()
    assert "1 of 4 rows failed" in first.stderr
    assert "shop: failing" in first.stderr
    assert "Not read: missing" in first.stderr
    assert "[1/4] main, bare encoder: 0.0 min elapsed, time left unknown" in first.stderr
    assert "[2/4] main, BM25: " in first.stderr
    assert "min left" in first.stderr
    assert "main: first" in first.stdout
    again = run("all", data, "--out", out, "--json", *FAST)
    assert again.exit_code == 1
    assert again.stderr.count("already in the result file") == 3
    assert [row["row"] for row in json.loads(again.stdout)["rows"]] == [line["row"] for line in lines]


def test_rows_of_other_code_are_run_again_unless_they_are_kept(data, tmp_path):
    out = tmp_path / "r.jsonl"
    command = ["main", data, "--out", out, *FAST, "--rows", "BM25"]
    run(*command)
    out.write_text(json.dumps({**json.loads(out.read_text()), "source_digest": "of other code"}) + "\n")
    kept = run(*command, "--keep-older")
    assert "BM25: already in the result file, measured with other code" in kept.stderr
    assert len(out.read_text().splitlines()) == 1
    assert "BM25: the result file has it from other code; it is run again" in run(*command).stderr
    assert len(out.read_text().splitlines()) == 2
    assert "contradict" in str(run(*command, "--keep-older", "--again").exception)


def test_the_budget_of_fine_tuning_is_an_option(data, tmp_path):
    assert "[default: 300]" in " ".join(run("main", "--help").stdout.split())
    refused = run("main", data, "--out", tmp_path / "r.jsonl", "--fine-tuning-steps", "0", *FAST)
    assert "Invalid value for --fine-tuning-steps" in str(refused.exception)


def test_the_budget_of_the_encoders_is_an_option_and_in_the_command_of_the_row(data, tiny, tmp_path):
    refused = run("encoders", data, "--out", tmp_path / "r.jsonl", "--encoder-passes", "0", *FAST)
    assert "--encoder-passes" in refused.output
    done = run(
        "encoders",
        data,
        "--out",
        tmp_path / "r.jsonl",
        "--encoder-passes",
        "2",
        "--rows",
        "DPR",
        "--base",
        tiny,
        *FAST,
    )
    assert done.exit_code == 0, done.output
    [record] = read_records(tmp_path / "r.jsonl")
    assert "--encoder-passes 2" in record["command"]
    assert record["config"]["settings"]["training"]["passes"] == 2


def test_wrong_options_are_explained(data, tmp_path):
    assert "No data set given" in str(run("main").exception)
    assert "No row matches" in str(
        run("main", data, "--out", tmp_path / "r.jsonl", "--rows", "x", *FAST).exception
    )
    assert "magic" in str(run("main", data, "--encoder", "magic").exception)
