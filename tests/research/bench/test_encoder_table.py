"""The paper's encoders: the three rows of a recipe share one encoder, and say how it was trained."""

from types import SimpleNamespace

import pytest

from metaxc.data import split
from metaxc.encoders.training.encoder_record import EncoderRecord
from metaxc.irene import Irene, IreneConfig
from metaxc.research.bench import Context, Results, get_table, run_table, select_rows
from metaxc.research.bench import context as context_module
from metaxc.research.bench.encoder_table import RECIPES, describe_training, recipe_training


@pytest.fixture
def shop_context(shop, tiny, tmp_path):
    dataset, _ = split(shop, novel=0.15, test=0.2)
    config = IreneConfig(base=str(tiny), folds=1, backend="torch", adapter={"epochs": 1})
    return Context(dataset, config, folder=tmp_path / "work")


def test_every_recipe_has_three_rows():
    rows = [row.name for row in get_table("encoders").rows]
    assert rows[:3] == ["DPR", "DPR + IRENE as in the paper", "DPR + metaxc"]
    assert len(rows) == 3 * len(RECIPES)


def test_rows_of_a_recipe_train_its_encoder_once(shop_context, tmp_path, monkeypatch):
    trained, train = [], context_module.train_encoder

    def count(dataset, config, *arguments, **rest):
        trained.append(config)
        return train(dataset, config, *arguments, **rest)

    monkeypatch.setattr(context_module, "train_encoder", count)
    table = get_table("encoders")
    rows = select_rows(table, "DPR", "DPR + metaxc")
    alone, ours = run_table(shop_context, table, rows, Results(tmp_path / "r.jsonl"))
    assert trained == [recipe_training(shop_context, "dpr")]
    assert trained[0].planned_steps(10_000) == 78  # one pass in batches of 128
    assert not trained[0].keep_start
    assert alone["config"]["settings"]["on top"] == "nothing"
    assert alone["config"]["settings"]["training"]["recipe"] == "dpr"
    assert 0 < alone["seconds"]["fit"] < ours["seconds"]["fit"]
    assert alone["note"] == "encoder: 1 steps, nothing held out"
    assert ours["note"] == alone["note"]
    assert ours["metrics"]["generalized"]["P@1"] > alone["metrics"]["generalized"]["P@1"]


def test_the_note_has_the_budget_and_the_best_step(tmp_path):
    record = EncoderRecord(
        recipe={},
        base="",
        data="",
        learnt_from_clicks=True,
        held_items=[],
        held_queries=[],
        steps=40,
        losses=[1.0],
        validation=[(0, 50.0), (20, 61.26), (40, 60.0)],
    )
    record.write(tmp_path)
    note = describe_training(SimpleNamespace(folder=tmp_path))
    curve = "mean of P@1 and R@10 on held-out items 50.0 after 0, 61.3 after 20, 60.0 after 40"
    assert note == f"encoder: best after 20 of 40 steps ({curve})"


def test_the_passes_are_the_contexts(shop_context):
    assert recipe_training(shop_context, "dpr").planned_steps(2_560) == 20
    shop_context.encoder_passes = 3.0
    assert recipe_training(shop_context, "ngame").planned_steps(2_560) == 60
    assert recipe_training(shop_context, "ngame").planned_steps(256_000) == 300


def test_the_papers_row_is_the_papers_configuration_on_the_trained_encoder(shop_context, monkeypatch):
    seen = []

    class StoppedError(Exception):
        pass

    def model(self, config, dataset=None):
        seen.append(config)
        raise StoppedError

    monkeypatch.setattr(Context, "model", model)
    [row] = select_rows(get_table("encoders"), "MACLR + IRENE*")
    with pytest.raises(StoppedError):
        row.run(shop_context)
    encoder, _ = shop_context.recipe_encoder(recipe_training(shop_context, "maclr"))
    assert seen == [Irene.paper(base=str(encoder.folder), fine_tuning=None).config]
