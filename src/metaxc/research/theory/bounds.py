"""The paper's generalization bounds as functions of counts and norms: Theorem 1, the lemmas and the corollary.

Theorem 1 bounds how far the risk on unseen pairs can lie above the risk on the training sample. A sample consists of
query–item pairs: every query with every item (*Cartesian*, one-vs-all), or each query with one item (*paired*). The
theorem adds two terms to the empirical risk: a deviation and the Rademacher complexity of the model class. Both are
computed in several forms, because the published statement and its proof differ, and neither is what can be proved:

    stated   as the theorem, lemma or corollary reads
    proof    as the appendix reads
    derived  what holds for pairs that share queries and items (derivations: docs/theory.md)

The published complexities stand in O(·) and are computed with a constant of 1. The derived ones are upper bounds on the
empirical Rademacher complexity over the N·L pairs of N queries and L items. An infinite value means that the form is
not applicable. Symbols:

    B  largest norm of a query embedding            d  embedding dimension
    W  largest norm of a classifier                 K  selected classifiers per item
    V  largest norm of the vectors that are mixed: the item's embedding and the classifiers
    ‖M‖₂, ‖M‖_F  norms of the linear layer after the mixing, ‖M‖_F ≤ √d · ‖M‖₂
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
    """The size of a sample of query–item pairs.

    Args:
        name: The kind of sample, for tables.
        pairs: M, the number of pairs that the risk averages over.
        independent: The largest number of pairs of which no two share a query or an item.
    """

    name: str
    pairs: int
    independent: int


def cartesian_sample(queries: int, items: int) -> PairSample:
    """Every query with every item: M = N·L pairs, of which at most min(N, L) share nothing."""
    _check_positive(queries=queries, items=items)
    return PairSample("Cartesian (one-vs-all)", queries * items, min(queries, items))


def paired_sample(queries: int) -> PairSample:
    """Each query with one item drawn for it: N independent pairs."""
    _check_positive(queries=queries)
    return PairSample("paired", queries, queries)


@dataclass(frozen=True)
class TailBound:
    """A bound factor · exp(exponent) on a probability; the exponent is kept because the value often underflows."""

    factor: float
    exponent: float

    @property
    def value(self) -> float:
        """The bound, at most 1."""
        return min(1.0, self.factor * exp(min(self.exponent, 0.0)))


def bad_set_probability(form: Form, pairs: int, p: float, kappa: int) -> TailBound:
    """q: a bound on the probability that a sample is a bad set, by Hoeffding's inequality.

    Args:
        form: `stated` and `proof` call a set with at least M − κ positives bad, with a factor of 1 and of 2; `derived`
            uses the complement of a good set, more than κ positives.
        pairs: M.
        p: The probability that a pair is positive.
        kappa: κ, the largest number of positives in a good set.
    """
    _check_probability(p=p)
    if not 0 <= kappa <= pairs:
        raise ConfigError("κ is not a number of pairs", got=kappa, expected=f"0 to {pairs}")
    margin = (kappa + 1) / pairs - p if form == "derived" else 1 - p - kappa / pairs
    return TailBound(2.0 if form == "proof" else 1.0, -2 * pairs * margin**2 if margin > 0 else 0.0)


def any_positive_probability(pairs: int, p: float) -> float:
    """The probability that a sample contains a positive pair, 1 − (1 − p)^M: the exact q for κ = 0."""
    _check_probability(p=p)
    return 1.0 if p == 1 else -expm1(pairs * log1p(-p))


def smallest_kappa(pairs: int, p: float, q: float) -> int:
    """The smallest κ for which Hoeffding's inequality bounds the probability of more than κ positives by q."""
    _check_probability(p=p, q=q)
    return min(pairs, max(0, ceil(p * pairs + sqrt(pairs * log(1 / q) / 2)) - 1))


def published_deviation(pairs: int, q: float, delta: float) -> float:
    """3 · (q + √(ln(2 / (δ − 2q)) / 2M)), for losses between 0 and 1; infinite where δ ≤ 2q.

    Args:
        pairs: M; the theorem treats the pairs as independent.
        q: The probability of a bad set.
        delta: δ, the probability with which the bound may fail.
    """
    _check_probability(delta=delta)
    return inf if delta <= 2 * q else 3 * (q + sqrt(log(2 / (delta - 2 * q)) / (2 * pairs)))


def derived_deviation(independent: int, delta: float, loss_range: float) -> float:
    """3 · b · √(ln(2 / δ) / 2n), with n pairs that share nothing and b the range of the loss."""
    _check_probability(delta=delta)
    _check_positive(independent=independent)
    return 3 * loss_range * sqrt(log(2 / delta) / (2 * independent))


def deviation(form: Form, sample: PairSample, p: float, kappa: int, delta: float, loss_range: float) -> float:
    """The deviation term in one form for one sample."""
    if form == "derived":
        return derived_deviation(sample.independent, delta, loss_range)
    q = bad_set_probability(form, sample.pairs, p, min(kappa, sample.pairs))
    return published_deviation(sample.pairs, q.value, delta)


def loss_range(largest_logit: float, positive_weight: float) -> float:
    """b: the difference between the largest and the smallest value of the weighted cross-entropy.

    Args:
        largest_logit: The largest absolute value of a logit.
        positive_weight: C, the weight of clicks in the loss.
    """
    largest_loss = max(1.0, positive_weight) * softplus(largest_logit)
    return largest_loss - min(1.0, positive_weight) * softplus(-largest_logit)


def uninformed_risk(p: float, positive_weight: float) -> float:
    """The risk of a model that scores every pair 0: ln 2 · (1 + (C − 1) p)."""
    return log(2) * (1 + (positive_weight - 1) * p)


def required_independent_pairs(delta: float, loss_range: float, limit: float) -> int:
    """The number of pairs that share nothing from which on the derived deviation is at most `limit`."""
    _check_probability(delta=delta)
    return ceil(log(2 / delta) / 2 * (3 * loss_range / limit) ** 2)


def softplus(logit: float) -> float:
    """ln(1 + e^logit): the cross-entropy of a negative pair."""
    return max(logit, 0.0) + log1p(exp(-abs(logit)))


def stated_frozen_complexity(b: float, m_spectral: float, dim: int, k: int) -> float:
    """Published lemma, frozen classifiers: B · ‖M‖₂ · √(d ln(K + 1)). It does not contain the sample size."""
    return b * m_spectral * sqrt(dim * log(k + 1))


def stated_trainable_complexity(
    b: float, w: float, m_spectral: float, dim: int, k: int, items: int, queries: int
) -> float:
    """Published corollary, trainable classifiers: B²W · √(L / M) · ‖M‖₂ · √(d ln(K + 1)) with M = N·L pairs."""
    return b * w * sqrt(items / (queries * items)) * stated_frozen_complexity(b, m_spectral, dim, k)


def proof_trainable_complexity(
    b: float, w: float, m_spectral: float, dim: int, k: int, items: int, queries: int
) -> float:
    """The corollary as its proof ends: √(L / N) instead of √(L / M), larger by √L."""
    return b * w * sqrt(items / queries) * stated_frozen_complexity(b, m_spectral, dim, k)


def stated_plain_complexity(b: float, w: float, items: int, queries: int) -> float:
    """Published lemma, plain extreme classifiers: L · B · W / √N, the complexity of the *sum* of L scores."""
    return items * b * w / sqrt(queries)


def fixed_mixing_complexity(b: float, v: float, m_frobenius: float, pairs: int) -> float:
    """Derived: B · V · ‖M‖_F / √pairs, for fixed mixing weights and one learned linear layer shared by all items.

    Args:
        b: B.
        v: V.
        m_frobenius: ‖M‖_F.
        pairs: N·L for the Cartesian sample, N for the paired one.
    """
    return b * v * m_frobenius / sqrt(pairs)


def free_mixing_complexity(b: float, v: float, m_frobenius: float, k: int, items: int, queries: int) -> float:
    """Derived, frozen classifiers: B · V · ‖M‖_F · (1 / √(N·L) + √(2 ln(K + 1) / N)).

    Every item may weigh its K + 1 vectors freely, so this holds for any attention; one linear layer is learned.
    """
    return b * v * m_frobenius * (1 / sqrt(queries * items) + sqrt(2 * log(k + 1) / queries))


def free_vectors_complexity(b: float, u: float, queries: int) -> float:
    """Derived, plain extreme classifiers and trainable ones: B · U / √N. It does not fall with the number of items.

    Every item has a vector of its own with norm at most U: its classifier (U = W), or the output of a generator with
    trainable classifiers (U = ‖M‖₂ · V).
    """
    return b * u / sqrt(queries)


def _check_positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ConfigError(f"The number of {name} must be positive", got=count, expected="1 or more")


def _check_probability(**values: float) -> None:
    for name, value in values.items():
        above_minimum = value >= 0 if name == "p" else value > 0
        if not (above_minimum and value <= 1):
            raise ConfigError(f"{name} is not a probability", got=value, expected="between 0 and 1")
