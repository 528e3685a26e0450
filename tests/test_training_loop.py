import math

import pytest
import torch

from metaxc.training_loop import (
    AdamWConfig,
    BestWeights,
    EarlyStopping,
    learning_rate,
    make_adamw,
    run_training,
)


def test_the_learning_rate_rises_and_falls_to_zero():
    rates = [learning_rate(1.0, step, 10, warmup=0.2) for step in range(10)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[3:] == pytest.approx([7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])


def follow(qualities, steps=10, losses=None, **config):
    """Train a number that is its step, validated at each step, and return where it ends and what was run."""
    weight = torch.zeros(1)
    found = iter(qualities)
    best = BestWeights([weight], lambda: next(found), steps, EarlyStopping(evaluations=steps, **config))
    done = 0
    while done < steps:
        done += 1
        weight += 1
        if best.after_step(done, 1.0 if losses is None else losses[done - 1]):
            break
    best.restore()
    return weight.item(), done


def test_the_best_weights_are_kept_and_a_run_that_does_not_improve_stops():
    assert follow([1, 2, 5, 4, 4, 4, 4], patience=3) == (2, 5)
    assert follow([1, 2, 3, 4, 5], steps=4, patience=3) == (4, 4)


def test_the_start_counts_too():
    assert follow([9, 1, 2, 3], steps=3) == (0, 3)


def test_of_equals_the_later_weights_are_kept_but_a_tie_is_no_gain():
    assert follow([1, 3, 3, 2], steps=3) == (2, 3)
    assert follow([1, 3, 3, 3, 3, 3], patience=2) == (3, 3)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_at_once(loss):
    assert follow([1, 2, math.nan], losses=[1.0, loss]) == (1, 2)


def test_a_quality_that_is_not_finite_is_never_the_best():
    assert follow([1, math.nan, 2, math.nan], steps=3) == (2, 3)


def test_a_run_is_validated_as_often_as_asked_for_and_at_its_end():
    measured = []
    best = BestWeights([], lambda: measured.append(0) or 0.0, 10, EarlyStopping(evaluations=4, patience=9))
    at = []
    for done in range(1, 11):
        before = len(measured)
        best.after_step(done, 0.0)
        at += [done] * (len(measured) - before)
    assert at == [3, 6, 9, 10]


def test_only_matrices_decay():
    matrix, gain = (torch.nn.Parameter(torch.ones(shape)) for shape in ((2, 2), (2,)))
    optimizer = make_adamw([matrix, gain], 0.1, AdamWConfig(weight_decay=0.5))
    loss = lambda step: 0.0 * (matrix.sum() + gain.sum())  # noqa: E731
    run_training(loss, [optimizer], 1, label="decay")
    assert matrix.detach().flatten().tolist() == pytest.approx([0.95] * 4)
    assert gain.tolist() == [1, 1]
