"""`metaxc report`, as a user types it."""

import json

import pytest
import typer
from typer.testing import CliRunner

from metaxc.cli.evaluation_commands import report
from metaxc.data import split, write_folder
from metaxc.encoders import EmbeddingCache
from metaxc.errors import MetaxcError
from metaxc.irene import Irene, IreneConfig
from metaxc.research.report import comparison

app = typer.Typer(pretty_exceptions_enable=False)
app.command("report")(report)


def run(*args):
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit | MetaxcError):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def workspace(shop, tmp_path_factory):
    """A folder with a data set and a small model trained on it."""
    folder = tmp_path_factory.mktemp("report")
    dataset = split(shop, novel=0.15, test=0.2)[0]
    write_folder(dataset, folder / "data")
    config = IreneConfig(encoder="static", folds=0, adapter={"epochs": 2})
    model = Irene(config, cache=EmbeddingCache(folder / "cache")).fit(dataset)
    model.about["seconds"] = {"encoder": 1.25}
    model.about["curves"] = {"encoder": {"loss": [2.0, 1.0], "step": [1, 2]}}
    model.save(folder / "model")
    return folder


def test_one_file_from_start_to_end(workspace, monkeypatch):
    monkeypatch.chdir(workspace)
    monkeypatch.setattr(comparison, "RESAMPLES", 1000)
    row = {"table": "main", "row": "BM25 <i>", "data": "shop", "metrics": {"zero_shot": {"P@1": 12.3}}}
    (workspace / "bench.jsonl").write_text(json.dumps(row) + "\n")
    options = ("--bench", "bench.jsonl", "--threads", 1, "--cache", "cache")
    result = run("model", "data", "--out", "report.html", *options)
    assert result.exit_code == 0
    assert "report.html: written" in result.stderr
    page = (workspace / "report.html").read_text(encoding="utf-8")
    assert "On 12 items that nobody has clicked, the first result is right for" in page
    assert "its static encoder alone" in page
    assert "the bare encoder (all-MiniLM-L6-v2)" in page
    assert "BM25 &lt;i&gt;" in page
    assert "12.3" in page
    assert '<td class="n">1.2</td>' in page, "seconds of training"
    assert "Loss of the encoder by step" in page
    assert "metaxc report model data --out report.html --bench bench.jsonl --threads 1 --cache cache" in page
    assert str(workspace) not in page, "no folders of the machine but those typed"


def test_errors_come_before_the_work(workspace, tmp_path):
    assert "cannot be written" in str(
        run(workspace / "model", workspace / "data", "--out", tmp_path).exception
    )
    (tmp_path / "bad.jsonl").write_text("{}\n")
    bad = run(
        workspace / "model",
        workspace / "data",
        "--out",
        tmp_path / "r.html",
        "--bench",
        tmp_path / "bad.jsonl",
    )
    assert "line 1" in str(bad.exception)
    assert not (tmp_path / "r.html").exists()


def test_help_teaches():
    assert "--bench" in run("--help").stdout
