"""The headline table and the ranks of relevant items."""

from dataclasses import replace

import numpy as np
import pytest
from fixed_searches import oracle, order

from metaxc.data import click_matrix
from metaxc.research.report import comparison
from metaxc.research.report.comparison import (
    Comparison,
    ConfidenceInterval,
    RelevantPairs,
    compare_systems,
    correct_p_values,
    evaluate_system,
    find_ranks,
    summarise,
)
from metaxc.research.report.page import format_signed, format_verdict


class TestHeadline:
    def test_the_model_knows_everything_and_the_embedding_nothing(self, report):
        zero = report.headlines["zero_shot"]
        assert (zero.queries, zero.items) == (160, 40)
        assert zero.row("model").numbers["P@1"] == ConfidenceInterval(100.0, 100.0, 100.0)
        assert zero.row("model").numbers["P@5"].value == pytest.approx(20)
        bare = zero.row("bare")
        assert bare.numbers["P@1"].value < 20
        assert bare.against["P@1"].gain == pytest.approx(100 - bare.numbers["P@1"].value)
        assert bare.against["P@1"].verdict == "better"
        assert list(report.systems) == ["model", "bare"], "the model's encoder is the bare one: no third row"

    def test_the_summary_states_the_result(self, report):
        assert report.summary.startswith(
            "On 40 items that nobody has clicked, the first result is right for 100 % of 160 queries, compared with "
        )
        assert "for the given vectors: significantly better (p = 0.001)." in report.summary
        assert "It is worse in" not in report.summary

    def test_better_worse_and_same_are_distinguished(self, world, monkeypatch):
        monkeypatch.setattr(comparison, "RESAMPLES", 1000)
        data, every = world.dataset, set(world.dataset.test.queries.texts)
        right, wrong = oracle(data), oracle(data, every)
        almost = oracle(data, {"t7"})
        systems = [
            evaluate_system("model", "M", almost, data),
            evaluate_system("adapted", "A", right, data),
            evaluate_system("bare", "B", wrong, data),
        ]
        zero = compare_systems(systems)["zero_shot"]
        assert zero.row("model").against == {}
        assert zero.row("adapted").against["P@1"].gain == pytest.approx(-100 / 160)
        assert zero.row("adapted").against["P@1"].verdict == "same", "one query of 160 shows nothing"
        assert zero.row("bare").against["P@1"].verdict == "better"
        worse = compare_systems([replace(systems[2], key="model"), replace(systems[1], key="bare")])
        assert worse["zero_shot"].row("bare").against["R@10"].verdict == "worse"
        text = summarise(worse)
        assert "right for 0 % of 160 queries, compared with 100 % for A: significantly worse" in text
        assert "It is worse in zero-shot P@1 (0.0 compared with 100.0), " in text
        same = compare_systems([replace(systems[1], key="model"), replace(systems[1], key="bare")])
        assert {c.p for c in same["zero_shot"].row("bare").against.values()} == {1.0}
        assert (
            "right for 100.0 % of 160 queries, compared with 100.0 % for A: no significant difference"
            in summarise(same)
        )

    def test_marks_are_words_and_symbols(self):
        assert format_verdict(Comparison(2.0, 0.01)) == "▲ model better"
        assert format_verdict(Comparison(-2.0, 0.01)) == "▼ model worse"
        assert format_verdict(Comparison(2.0, 0.05)) == "≈ no difference"
        assert Comparison(2.0, 0.0004).p_text == "p < 0.001"
        assert format_signed(-1.25) == "−1.2"

    def test_holm(self):
        # By hand: 0.01 × 3, then 0.03 × 2, then max with 0.04 × 1.
        assert correct_p_values([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
        assert correct_p_values([0.9, 0.8]) == [1.0, 1.0]


class TestRanks:
    def test_ranks_of_relevant_items(self):
        pairs = RelevantPairs(np.array([0, 0, 1]), np.array([2, 3, 0]), 2)
        assert find_ranks(np.array([[3, 1, 2], [2, 1, -1]]), pairs, None).tolist() == [3, 1, 0]

    def test_filtered_results_take_no_rank(self, tiny):
        filters = click_matrix(np.array([0, 2]), np.array([2, 1]), (3, 6))
        system = evaluate_system("model", "M", order(2, 1, 4, 0, 3, 5), replace(tiny, filters=filters))
        # a: 2 is left out, so 0 is third and 4 second; b: 5 is sixth; c: 1 is filtered, 3 is fourth.
        assert system.ranks["generalized"].tolist() == [3, 2, 6, 4]
        assert system.ranks["zero_shot"].tolist() == [1, 2]
        assert system.evaluation["generalized"]["R@1"] == 0
        assert system.evaluation["generalized"]["R@3"] == pytest.approx(100 / 3)
