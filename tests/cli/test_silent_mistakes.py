"""Easy mistakes that once gave wrong numbers or ignored options without a word."""

import json

import pytest
from commands import run

from metaxc.cli.serve_command import open_or_create_catalog
from metaxc.data import Dataset, split, write_folder
from metaxc.emmett import Emmett
from metaxc.irene import Irene
from metaxc.research.report import comparison


@pytest.fixture(scope="module")
def folders(shop, shop_folder, shop_training, tmp_path_factory):
    place = tmp_path_factory.mktemp("folders")
    write_folder(shop, place / "unsplit")
    (place / "split").symlink_to(shop_folder)
    (place / "model").symlink_to(shop_training[0])
    return place


class TestEvaluatingWhatWasTrainedOn:
    def test_evaluate_refuses_and_explains(self, folders):
        assert run("evaluate", folders / "model", folders / "split", "--json").exit_code == 0
        refused = run("evaluate", folders / "model", folders / "unsplit", "--json")
        assert refused.exit_code != 0
        assert refused.stdout == ""
        message = str(refused.exception)
        assert "trained on" in message
        assert "test queries" in message
        assert "novel items" in message
        assert "folder that was given to train" in message

    def test_allow_overlap_marks_the_result(self, folders):
        printed = json.loads(
            run("evaluate", folders / "model", folders / "unsplit", "--allow-overlap", "--json").stdout
        )
        assert printed["overlap"]["fair"] is False
        assert printed["overlap"]["queries"] > 0
        table = run("evaluate", folders / "model", folders / "unsplit", "--allow-overlap").stdout
        assert table.startswith("NOT A FAIR RESULT")
        assert table.count("NOT A FAIR RESULT") == 2
        fair = run("evaluate", folders / "model", folders / "split").stdout
        assert "NOT A FAIR" not in fair
        assert "Note:" not in fair

    def test_the_report_refuses_and_marks_alike(self, folders, tiny, tmp_path, monkeypatch):
        monkeypatch.setattr(comparison, "RESAMPLES", 1000)
        page = tmp_path / "report.html"
        command = ("report", folders / "model", folders / "unsplit", "--out", page, "--base", tiny)
        command += ("--threads", 1)
        assert "trained on" in str(run(*command).exception)
        assert not page.exists()
        assert run(*command, "--allow-overlap").exit_code == 0
        assert "not comparable" in page.read_text(encoding="utf-8")


def test_too_few_clicks_to_choose_constants_are_reported(small, tmp_path):
    items = {f"i{n}": f"thing {n}" for n in range(12)}
    queries = {f"q{n}": f"query {n}" for n in range(12)}
    few = Dataset.of(items, queries, [(f"q{n}", f"i{n}") for n in range(12)])
    write_folder(split(few, novel=0.2, test=0.2)[0], tmp_path / "data")
    result = run("train", tmp_path / "data", "--out", tmp_path / "model", *small)
    assert result.exit_code == 0
    assert "chosen on pseudo-novel items:" not in result.stderr
    assert "default constants, none chosen (too few clicks" in result.stderr
    explained = run("explain", tmp_path / "model", "a new thing")
    assert "on pseudo-novel items" not in explained.stdout


class TestExplain:
    def test_an_unknown_id_is_named(self, folders):
        known = Emmett.load(folders / "model").items.ids[0]
        notice = run("explain", folders / "model", "cat-smal")
        assert "no item of the model has the id 'cat-smal'" in notice.stderr
        assert "new item: cat-smal" in notice.stdout
        assert "no item of the model" not in run("explain", folders / "model", known).stderr
        refused = str(run("explain", folders / "model", "--id", "cat-smal").exception)
        assert "no item with this id" in refused
        assert "cat-small" in refused, "it suggests what was meant"
        assert "either" in str(run("explain", folders / "model").exception)

    def test_an_observed_item_is_not_its_own_neighbour(self, folders):
        model = Emmett.load(folders / "model")
        observed = model.items.ids[int(model.observed[3])]
        printed = json.loads(run("explain", folders / "model", observed, "--json").stdout)
        assert printed["id"] == observed
        assert observed not in {neighbour["id"] for neighbour in printed["neighbours"]}
        assert len(printed["neighbours"]) == model.neighbours
        assert printed["revealed_share"] > 0, "its own clicks are a part of what is served"
        assert "its own clicks" in run("explain", folders / "model", observed).stdout

    def test_the_shares_are_of_the_vector_that_is_served(self, folders):
        model = Emmett.load(folders / "model")
        row = int(model.observed[3])
        found = model.explain(id=model.items.ids[row])
        total = found.text_share + found.neighbour_share + found.learnt_share + found.revealed_share
        assert total == pytest.approx(100)
        made = model.pipeline.run(
            model.embeddings[[3]], classifiers=model.classifiers.take([3]), itself=model.observed[:1] * 0 + 3
        )
        assert made.vectors[0] == pytest.approx(model.vectors[row], abs=1e-5)


class TestPaper:
    @pytest.mark.parametrize(
        ("options", "named"),
        [
            (["--folds", "2"], "--folds 2"),
            (["--expansion-queries", "5"], "--expansion-queries 5"),
            (["--exposure", "0.2"], "--exposure 0.2"),
            (["--exposure-cost", "1"], "--exposure-cost 1.0"),
            (["--epochs", "7"], "--epochs 7"),
            (["--classifiers", "ridge"], "--classifiers ridge"),
            (["--generator", "combine"], "--generator combine"),
            (["--size", "fast"], "--size fast"),
            (["--encoder", "static"], "--encoder static"),
            (["--fine-tuning", "50"], "--fine-tuning 50"),
        ],
    )
    def test_options_that_it_would_ignore_are_refused(self, folders, tmp_path, options, named):
        refused = run("train", folders / "split", "--out", tmp_path / "model", "--paper", *options)
        assert named in str(refused.exception)
        assert "--paper" in str(refused.exception)
        assert not (tmp_path / "model").exists()

    def test_what_it_leaves_open_may_be_given(self):
        from metaxc.cli.train_command import _config

        given = {
            "seed": 3,
            "neighbours": 5,
            "training": {"depth": 2},
            "classifiers": "one_vs_all",
            "folds": 0,
            "fine_tuning": None,
        }
        config = _config(given, "default", paper=True)
        changes = {"seed": 3, "neighbours": 5, "training": {"depth": 2}, "fine_tuning": None}
        assert config == Irene.paper(**changes).config


def test_data_for_a_catalog_that_exists_is_reported(folders, tmp_path, capsys):
    def open_catalog():
        open_or_create_catalog(
            tmp_path / "catalog", folders / "model", folders / "split", False, None, None
        ).close()
        return capsys.readouterr().err

    assert "not used" not in open_catalog()
    assert f"--data {folders / 'split'} is not used" in open_catalog()
