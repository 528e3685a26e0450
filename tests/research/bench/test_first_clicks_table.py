"""The first clicks of novel items."""

import numpy as np

from metaxc.data import Dataset
from metaxc.evaluation import evaluate, model_search
from metaxc.research.baselines import emmett_baselines
from metaxc.research.bench import (
    Results,
    get_table,
    run_table,
)
from metaxc.research.bench.first_clicks_table import sample_hidden_clicks


class TestFirstClicks:
    def test_revealed_queries_are_hidden_training_clicks_and_nested(self, world):
        dataset = world.dataset
        few, more = sample_hidden_clicks(dataset, 1, 0), sample_hidden_clicks(dataset, 5, 0)
        assert len(few) == int(dataset.novel.sum())
        for item, one, five in zip(dataset.novel_rows, few, more, strict=True):
            assert one.tolist() == five[:1].tolist()
            assert len(set(five.tolist())) == 5
            assert dataset.train.clicks[five][:, [item]].toarray().all()
        assert np.concatenate(sample_hidden_clicks(dataset, 1, 1)).tolist() != np.concatenate(few).tolist()

    def test_an_item_with_fewer_clicks_reveals_all_of_them(self):
        items, queries = {"a": "a", "b": "b", "c": "c"}, {"q": "q", "r": "r"}
        dataset = Dataset.of(items, queries, [("q", "a"), ("r", "b"), ("q", "b")]).with_novel(["b", "c"])
        assert sorted(sample_hidden_clicks(dataset, 5, 0)[0].tolist()) == [0, 1]
        assert sample_hidden_clicks(dataset, 5, 0)[1].tolist() == []

    def test_revealed_queries_find_their_item(self, context, tmp_path):
        table = get_table("oneshot")
        rows = [row for row in table.rows if row.name in ("metaxc", "votes of 1", "both of 5")]
        found = run_table(context, table, rows, Results(tmp_path / "r.jsonl"))
        assert [r["metrics"]["zero_shot"]["P@1"] > 95 for r in found] == [True] * 3
        assert found[1]["note"] == "1 revealed for 40 of 40 novel items, fewer for 0, none for 0"

    def test_training_again_is_searched_like_the_other_rows(self, context, tmp_path, monkeypatch):
        """The last row, with one revealed query per item: what `model_search` finds with the retrained model."""
        table = get_table("oneshot")
        dataset, searched = context.dataset, []

        def search(model, data, *, allow_overlap):
            searched.append((model, data))
            return model_search(model, data, allow_overlap=allow_overlap)

        monkeypatch.setattr(emmett_baselines, "model_search", search)
        rows = [row for row in table.rows if row.name == "trained again with 1"]
        [found] = run_table(context, table, rows, Results(tmp_path / "r.jsonl"))
        [(model, data)] = searched
        assert data is dataset
        assert len(model.observed) == len(dataset.items)  # all novel items have a revealed click
        again = evaluate(model_search(model, dataset, allow_overlap=True), dataset, intervals=False)
        assert found["metrics"]["zero_shot"]["R@10"] == again["zero_shot"]["R@10"] > 95
