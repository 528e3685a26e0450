"""Theorem 1: how far the risk on fresh pairs can lie above the risk on the sample that was trained on.

A sample is made of query–item pairs: every query with every item (*Cartesian*, one-vs-all), or each query with one item
(*paired*). The deviation is what the theorem adds to the empirical risk beside the complexity of the model. It is
computed in three forms, because the published statement and its proof differ, and neither is what can be proved:

    stated   as the theorem reads
    proof    as the appendix reads: twice the q
    derived  what holds for pairs that share queries and items (docs/theory.md)

All are pure functions of counts. A value of infinity means that the form says nothing at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, expm1, inf, log, log1p, sqrt
from typing import Literal

from metaxc.errors import ConfigError

Form = Literal["stated", "proof", "derived"]
FORMS: tuple[Form, ...] = ("stated", "proof", "derived")


@dataclass(frozen=True)
class PairSample:
    """How pairs were drawn.

    Args:
        name: For tables.
        pairs: M, how many pairs the risk is a mean of.
        independent: The most of them that share neither query nor item.
    """

    name: str
    pairs: int
    independent: int


def cartesian(queries: int, items: int) -> PairSample:
    """Every query with every item: M = N·L pairs, of which min(N, L) at most share nothing."""
    _positive(queries=queries, items=items)
    return PairSample("Cartesian (one-vs-all)", queries * items, min(queries, items))


def paired(queries: int) -> PairSample:
    """Each query with one item of its own draw: N pairs, all independent."""
    _positive(queries=queries)
    return PairSample("paired", queries, queries)


@dataclass(frozen=True)
class Tail:
    """A bound factor · exp(exponent) on a probability. The exponent is kept, since the value is often 0 in floats."""

    factor: float
    exponent: float

    @property
    def value(self) -> float:
        """At most 1."""
        return min(1.0, self.factor * exp(min(self.exponent, 0.0)))


def bad_set(form: Form, pairs: int, p: float, kappa: int) -> Tail:
    """q: a bound on the probability of a bad set.

    Args:
        form: `stated` and `proof` take at least M − κ positives for bad, by Hoeffding's inequality with a factor of 1
            and of 2; `derived` takes what a good set leaves over, more than κ positives.
        pairs: M.
        p: The probability that a pair is positive.
        kappa: κ, the most positives of a good set.
    """
    _share(p=p)
    if not 0 <= kappa <= pairs:
        raise ConfigError("κ is not a number of pairs", got=kappa, expected=f"0 to {pairs}")
    if form == "derived":
        over = (kappa + 1) / pairs - p
        return Tail(1.0, -2 * pairs * over**2 if over > 0 else 0.0)
    over = 1 - p - kappa / pairs
    return Tail(2.0 if form == "proof" else 1.0, -2 * pairs * over**2 if over > 0 else 0.0)


def any_positive(pairs: int, p: float) -> float:
    """The probability that a sample has a positive at all: what q is for κ = 0, exactly, 1 − (1 − p)^M."""
    _share(p=p)
    return 1.0 if p == 1 else -expm1(pairs * log1p(-p))


def kappa_needed(pairs: int, p: float, q: float) -> int:
    """The smallest κ for which Hoeffding's inequality lets more than κ positives happen with probability q at most."""
    _share(p=p, q=q)
    return min(pairs, max(0, ceil(p * pairs + sqrt(pairs * log(1 / q) / 2)) - 1))


def published_deviation(pairs: int, q: float, delta: float) -> float:
    """3 · (q + √(ln(2 / (δ − 2q)) / 2M)), for losses between 0 and 1; infinite where δ ≤ 2q.

    Args:
        pairs: M, taken for independent pairs.
        q: The probability of a bad set.
        delta: δ, the probability with which the bound may fail.
    """
    _share(delta=delta)
    return inf if delta <= 2 * q else 3 * (q + sqrt(log(2 / (delta - 2 * q)) / (2 * pairs)))


def derived_deviation(independent: int, delta: float, loss_range: float) -> float:
    """3 · b · √(ln(2 / δ) / 2n), n the number of pairs that share nothing, b the range of the loss."""
    _share(delta=delta)
    _positive(independent=independent)
    return 3 * loss_range * sqrt(log(2 / delta) / (2 * independent))


def deviation(form: Form, sample: PairSample, p: float, kappa: int, delta: float, loss_range: float) -> float:
    """The deviation term of one form, for one sample."""
    if form == "derived":
        return derived_deviation(sample.independent, delta, loss_range)
    return published_deviation(
        sample.pairs, bad_set(form, sample.pairs, p, min(kappa, sample.pairs)).value, delta
    )


def loss_range(largest_logit: float, positive_weight: float) -> float:
    """b: between what the weighted cross-entropy costs at most and at least.

    Args:
        largest_logit: No logit is larger than this, in absolute value.
        positive_weight: C.
    """
    most = max(1.0, positive_weight) * softplus(largest_logit)
    return most - min(1.0, positive_weight) * softplus(-largest_logit)


def ignorance(p: float, positive_weight: float) -> float:
    """The risk of a model that knows nothing and scores every pair 0: ln 2 · (1 + (C − 1) p)."""
    return log(2) * (1 + (positive_weight - 1) * p)


def independent_needed(delta: float, loss_range: float, below: float) -> int:
    """How many pairs that share nothing bring the derived deviation down to `below`."""
    _share(delta=delta)
    return ceil(log(2 / delta) / 2 * (3 * loss_range / below) ** 2)


def softplus(logit: float) -> float:
    """ln(1 + e^logit): the cross-entropy of a negative pair."""
    return max(logit, 0.0) + log1p(exp(-abs(logit)))


def _positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ConfigError(f"The number of {name} must be positive", got=count, expected="1 or more")


def _share(**values: float) -> None:
    for name, value in values.items():
        lowest_fits = value >= 0 if name == "p" else value > 0
        if not (lowest_fits and value <= 1):
            raise ConfigError(f"{name} is not a probability", got=value, expected="between 0 and 1")
