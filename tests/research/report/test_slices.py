"""R@10 by kind of item and of query."""

from dataclasses import replace

import numpy as np
import pytest
from fixed_searches import order

from metaxc.data import Texts
from metaxc.research.report.comparison import ConfidenceInterval, evaluate_system
from metaxc.research.report.slices import click_bounds, compute_slices


class TestSlices:
    @pytest.fixture
    def slices(self, tiny):
        found = evaluate_system("model", "M", order(0, 4, 1, 5, 2, 3), tiny)
        nothing = evaluate_system("bare", "B", lambda texts, k, among: np.full((len(texts), k), -1), tiny)
        return {(s.title, s.setting): s for s in compute_slices([found, nothing], tiny)}

    def test_items_by_clicks(self, slices):
        groups = slices["items by training clicks", "generalized"].groups
        # 10 clicks in all: item 0 has 4, more than a third; with item 1 it is 7, more than two thirds.
        assert [(g.name, g.count) for g in groups] == [
            ("head: 4 clicks or more", 1),
            ("torso: 3 clicks", 1),
            ("tail: 1 to 2 clicks", 1),
            ("no clicks", 2),
        ]
        assert all(g.numbers["model"].value == 100 and g.numbers["bare"].value == 0 for g in groups)
        assert all(g.gain == ConfidenceInterval(100.0, 100.0, 100.0) for g in groups)

    def test_queries_by_novel_share(self, slices):
        groups = slices["queries by novel items", "generalized"].groups
        assert [(g.name, g.count) for g in groups] == [("all novel", 1), ("some novel", 1), ("none novel", 1)]

    def test_items_by_length(self, slices):
        groups = slices["items by text length", "generalized"].groups
        # The five pairs' items have 1, 1, 3, 2 and 3 words.
        assert [(g.name, g.count) for g in groups] == [("1 word", 2), ("2 to 3 words", 3)]
        assert [g.count for g in slices["items by text length", "zero_shot"].groups] == [1, 1]

    def test_pairs_count_once_each_and_not_by_query(self, tiny):
        deep = replace(tiny, items=Texts(tiny.items.ids, ["same"] * 6))
        ours = evaluate_system("model", "M", order(0, 1, 2, 3, 4), deep)
        bare = evaluate_system("bare", "B", order(0), deep)
        (group,) = {(s.title, s.setting): s for s in compute_slices([ours, bare], deep)}[
            "items by text length", "generalized"
        ].groups
        # Found pairs of 5: all but (b, 5); against (a, 0) alone. By query it would be 2 / 3 and 1 / 6.
        assert group.numbers["model"].value == pytest.approx(80)
        assert group.numbers["bare"].value == pytest.approx(20)
        assert group.gain.value == pytest.approx(60)
        assert group.gain.low < 60 < group.gain.high

    def test_click_bounds_keep_equal_counts_together(self):
        assert click_bounds(np.array([5, 5, 5, 0])) == (5, 5)
        assert click_bounds(np.array([90, 1, 1, 1])) == (90, 90)
        assert click_bounds(np.array([3, 3, 2, 2, 1, 1])) == (3, 2)
