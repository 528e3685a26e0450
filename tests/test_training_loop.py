import pytest

from metaxc.training_loop import learning_rate


def test_the_learning_rate_rises_and_falls_to_zero():
    rates = [learning_rate(1.0, step, 10, warmup=0.2) for step in range(10)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[3:] == pytest.approx([7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])
