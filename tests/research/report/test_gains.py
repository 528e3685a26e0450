"""Gains of single novel items."""

import numpy as np
from fixed_searches import oracle

from metaxc.research.report.comparison import evaluate_system
from metaxc.research.report.gains import bin_by_similarity, compute_gains, largest_changes


class TestGains:
    def test_every_item_of_the_world(self, report):
        gains = report.gains
        assert gains.items == 40
        assert gains.worse == 0
        assert gains.lost == []
        assert len(gains.gained) == 20
        assert [item.gain for item in gains.gained] == sorted((i.gain for i in gains.gained), reverse=True)
        assert sum(b.items for b in gains.bins) == 40
        assert len(gains.bins) == 8
        item = gains.gained[0]
        assert (item.queries, item.recall) == (4, 100.0)
        assert item.example.rank == 1
        assert item.example.bare_rank > 10
        group = int(item.id[1:]) // 5
        assert int(item.example.query[1:]) // 4 == group, "a query of the item's own group"
        assert int(item.neighbours[0].id[1:]) // 5 == group

    def test_recall_is_per_item_and_not_per_query(self, world, model):
        data = world.dataset
        ours = evaluate_system("model", "M", oracle(data, {"t0", "t1", "t2"}), data)
        bare = evaluate_system("bare", "B", oracle(data), data)
        gains = compute_gains(model, ours, bare, data)
        (lost,) = gains.lost
        assert (lost.id, lost.recall, lost.bare_recall) == ("i4", 25.0, 100.0)
        assert lost.example.query == "t0"
        assert (lost.example.rank, lost.example.bare_rank) == (40, 1)
        assert (gains.better, gains.worse, gains.gained) == (0, 1, [])

    def test_ties_go_to_more_queries_then_to_order(self):
        gain, queries = np.array([50.0, 50, 0, 50, -10, -10]), np.array([1, 2, 9, 2, 1, 1])
        assert largest_changes(gain, queries, 2) == ([1, 3], [4, 5])

    def test_bins_of_equally_many_items(self):
        similarity = np.linspace(1, 0, 40)
        bins = bin_by_similarity(similarity, np.where(similarity > 0.5, 10.0, 0.0))
        assert [b.items for b in bins] == [5] * 8
        assert [b.gain.value for b in bins] == [0] * 4 + [10] * 4
        assert bins[0].low == 0
        assert bins[-1].high == 1
        assert len(bin_by_similarity(similarity[:7], similarity[:7])) == 1
