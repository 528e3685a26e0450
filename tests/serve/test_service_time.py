"""Running estimates of how long a batch takes."""

import pytest

from metaxc.serve.service_time import ServiceTime


def learnt(*batches, rounds=40):
    estimate = ServiceTime()
    for _ in range(rounds):
        for tokens, seconds in batches:
            estimate.observe(tokens, seconds)
    return estimate


def test_the_fixed_cost_and_the_cost_per_token_are_told_apart():
    estimate = learnt((10, 0.011), (100, 0.02), (250, 0.035))
    assert estimate.per_token == pytest.approx(1e-4, rel=0.05)
    assert estimate.fixed == pytest.approx(0.01, rel=0.05)
    assert estimate.predict(1000, batches=4) == pytest.approx(0.14, rel=0.05)


def test_batches_of_one_size_are_predicted_well():
    estimate = learnt((256, 0.1))
    assert estimate.predict(256) == pytest.approx(0.1, rel=0.02)
    assert 0 <= estimate.predict(512) <= 0.21


def test_noise_never_makes_a_cost_negative():
    estimate = learnt((10, 0.05), (200, 0.01))
    assert estimate.per_token >= 0
    assert estimate.fixed >= 0


def test_it_follows_a_machine_that_becomes_slower_or_faster():
    estimate = learnt((256, 0.1))
    for _ in range(60):
        estimate.observe(256, 0.3)
    assert estimate.predict(256) == pytest.approx(0.3, rel=0.1)


def test_one_slow_batch_does_not_spoil_the_estimate():
    estimate = learnt((20, 0.01))
    estimate.observe(20, 60.0)
    assert estimate.predict(20) < 0.02
