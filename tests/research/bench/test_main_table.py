"""The main table and the novel-ratio table."""

from itertools import pairwise

import numpy as np

from metaxc.evaluation import evaluate, model_search
from metaxc.irene import Irene, IreneConfig
from metaxc.research.bench import (
    Context,
    Results,
    get_table,
    run_table,
    select_rows,
)
from metaxc.research.bench.main_table import RATIOS, oracle_vectors, with_novel_ratio
from metaxc.research.bench.rows import with_vectors

CONFIG = IreneConfig(encoder="pretrained", folds=1)


def evaluate_model(model, dataset):
    return evaluate(model_search(model, dataset), dataset, intervals=False)


class TestMain:
    def test_the_oracle_is_the_best_and_the_bare_encoder_the_worst(self, context, tmp_path):
        table = get_table("main")
        wanted = ("metaxc", "bare encoder", "oracle (adapted)", "metaxc (frozen)")
        rows = [row for row in table.rows if row.name in wanted]
        found = {r["row"]: r for r in run_table(context, table, rows, Results(tmp_path / "r.jsonl"))}
        recall = {name: r["metrics"]["zero_shot"]["R@10"] for name, r in found.items()}
        assert recall["metaxc"] > 95
        assert recall["bare encoder"] < 60
        assert recall["oracle (adapted)"] >= recall["metaxc"]
        assert found["metaxc (frozen)"]["metrics"] == found["metaxc"]["metrics"]
        assert found["bare encoder"]["versus_default"]["zero_shot"]["R@10"]["significant"] is True
        # Novel items compete with observed ones here, four of them right for each query.
        mixed = found["metaxc"]["metrics"]["generalized"]
        assert mixed["novel"]["R@10"] > 95
        assert mixed["H"] > found["bare encoder"]["metrics"]["generalized"]["H"] + 30
        assert mixed["by_clicks"]["0"]["pairs"] == 160
        assert found["metaxc"]["intervals"]["generalized"]["novel"]["R@10"][1] <= 100
        assert found["bare encoder"]["versus_default"]["novel"]["R@10"]["significant"] is True
        assert found["metaxc"]["counts"]["zero_shot"] == {"queries": 160, "items": 40}
        assert found["metaxc"]["config"]["settings"]["recipe"]["folds"] == 1

    def test_the_oracle_changes_novel_items_alone(self, context, world):
        model = context.default
        vectors = oracle_vectors(model, world.dataset)
        novel = world.dataset.novel
        np.testing.assert_array_equal(vectors[~novel], model.vectors[~novel])
        blind = with_vectors(model, np.where(novel[:, None], 0, model.vectors).astype(np.float32))
        assert evaluate_model(blind, world.dataset)["zero_shot"]["P@1"] < 10  # all alike: by row
        assert evaluate_model(with_vectors(model, vectors), world.dataset)["zero_shot"]["P@1"] > 95
        assert model.vectors is not vectors

    def test_the_papers_rows_are_the_papers_configuration(self, context):
        trained, frozen = select_rows(get_table("main"), "IRENE*")
        recipes = [IreneConfig(**row.settings(context)["recipe"]) for row in (trained, frozen)]
        assert recipes == [Irene.paper().config, Irene.paper(fine_tuning=None).config]

    def test_the_default_model_is_trained_once(self, context, monkeypatch):
        assert context.default is context.default

        def refuse(*args, **kwargs):
            raise AssertionError("trained again")

        monkeypatch.setattr(Irene, "fit", refuse)
        again = Context(context.dataset, CONFIG, folder=context.folder, encoder=context.encoder)
        np.testing.assert_array_equal(again.default.vectors, context.default.vectors)
        assert again.default.about["seconds"]["fit"] > 0


class TestRatio:
    def test_sets_are_nested_and_of_their_size(self, world):
        sets = [with_novel_ratio(world.dataset, percent, 0).novel for percent in RATIOS]
        assert [int(mask.sum()) for mask in sets] == [20, 40, 60, 80]  # its own novel items are 20 percent
        for small, large in pairwise(sets):
            assert (large | ~small).all()

    def test_the_data_sets_own_ten_percent_are_the_first_set(self, world):
        own = np.zeros(200, dtype=bool)
        own[::10] = True
        dataset = world.dataset.with_novel(own)
        assert with_novel_ratio(dataset, 10, 0) is dataset
        twenty = with_novel_ratio(dataset, 20, 0).novel
        assert twenty[own].all()
        assert twenty.sum() == 40

    def test_rows(self, context, tmp_path):
        table = get_table("novel-ratio")
        results = Results(tmp_path / "r.jsonl")
        main = get_table("main")
        run_table(context, main, select_rows(main, "metaxc"), results)
        found = run_table(context, table, select_rows(table, "*40 %*"), results)
        bare, alone, ours = (r["metrics"]["zero_shot"]["R@10"] for r in found)
        assert alone == bare  # one and the same encoder here
        assert ours > 90 > bare + 20
        assert found[0]["counts"]["zero_shot"]["items"] == 80
        assert not any("versus_default" in r for r in found)
