"""All that the theory says of one trained model, in one object: `metaxc theory` prints it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np

from metaxc.arrays import Floats
from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.research.theory import bounds, rademacher
from metaxc.research.theory.empirical import Estimate, Tokens, of_free_vectors, of_mixtures
from metaxc.research.theory.norms import SAMPLED, Mixed, Quantities, measured, mixed

SMALL = 64
"""Queries and items of the empirical estimate: it climbs over every draw of signs."""


@dataclass(frozen=True)
class Assumed:
    """What the bounds need beside the model.

    Args:
        delta: δ, the probability with which a bound may fail.
        kappa: κ, the most positives of a good set; None takes as many as are to be expected of a sample.
        positive_weight: C.
        scale: Of the logits.
    """

    delta: float = 0.05
    kappa: int | None = None
    positive_weight: float = 4.0
    scale: float = 20.0


@dataclass(frozen=True)
class Term:
    """One number of the theory.

    Args:
        name: What it is, in words.
        form: stated, proof or derived.
        formula: As computed.
        value: May be infinite.
        trivial: The value from which on it says nothing; None where it is only a part of a bound.
    """

    name: str
    form: str
    formula: str
    value: float
    trivial: float | None = None

    @property
    def vacuous(self) -> bool | None:
        """Whether it says nothing; None where that cannot be asked."""
        return None if self.trivial is None else not self.value < self.trivial

    def to_dict(self) -> dict[str, Any]:
        """For JSON: infinity is null."""
        value = self.value if isfinite(self.value) else None
        return {**asdict(self), "value": value, "vacuous": self.vacuous}


@dataclass(frozen=True)
class Loose:
    """A derived term beside its estimate, on the same few queries and items."""

    name: str
    bound: float
    estimate: Estimate

    @property
    def ratio(self) -> float:
        """How many times the bound is above the estimate."""
        return self.bound / self.estimate.mean


@dataclass(frozen=True)
class Account:
    """What the theory says of a model."""

    quantities: Quantities
    assumed: Assumed
    kappa: int
    deviations: tuple[Term, ...]
    complexities: tuple[Term, ...]
    totals: tuple[Term, ...]
    notes: tuple[str, ...]
    loose: tuple[Loose, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "quantities": {**asdict(self.quantities), "p": self.quantities.p, "pairs": self.pairs},
            "assumed": {**asdict(self.assumed), "kappa": self.kappa},
            "deviations": [term.to_dict() for term in self.deviations],
            "complexities": [term.to_dict() for term in self.complexities],
            "totals": [term.to_dict() for term in self.totals],
            "notes": list(self.notes),
            "empirical": [
                {"name": one.name, "bound": one.bound, "ratio": one.ratio, **asdict(one.estimate)}
                for one in self.loose
            ],
        }

    @property
    def pairs(self) -> int:
        """M."""
        return self.quantities.queries * self.quantities.items


def account(
    model: Emmett, dataset: Dataset, assumed: Assumed | None = None, *, draws: int = 10, seed: int = 0
) -> Account:
    """The quantities of a model, and every bound from them.

    Args:
        model: Trained on `dataset`.
        dataset: With its novel items.
        assumed: What the bounds need beside.
        draws: Of signs, for the empirical estimate; 0 leaves it out.
        seed: Of the samples and the signs.
    """
    assumed = assumed or Assumed()
    log = dataset.observed_log()
    random = np.random.default_rng(seed)
    rows = np.sort(random.permutation(len(log))[:SAMPLED])
    queries = model.encode_queries([log.queries.texts[row] for row in rows])
    items = mixed(model, seed=seed)
    found = measured(model, queries, items, count=len(log), clicks=log.clicks.nnz)
    kappa = found.clicks if assumed.kappa is None else assumed.kappa
    deviations = _deviations(found, assumed)
    complexities = _complexities(found)
    return Account(
        found,
        assumed,
        kappa,
        deviations,
        complexities,
        _totals(found, assumed, deviations, complexities),
        _notes(found, assumed, kappa),
        _loose(found, queries, items, model.neighbour_vectors, draws, seed) if draws else (),
    )


def _range(found: Quantities, assumed: Assumed) -> float:
    return bounds.loss_range(assumed.scale * found.query_norm * found.meta_norm, assumed.positive_weight)


def _deviations(found: Quantities, assumed: Assumed) -> tuple[Term, ...]:
    terms = []
    for sample in (bounds.cartesian(found.queries, found.items), bounds.paired(found.queries)):
        for form in bounds.FORMS:
            derived = form == "derived"
            b = _range(found, assumed) if derived else 1.0
            trivial = bounds.ignorance(found.p, assumed.positive_weight) if derived else 1.0
            good = round(found.p * sample.pairs) if assumed.kappa is None else assumed.kappa
            value = bounds.deviation(form, sample, found.p, good, assumed.delta, b)
            formula = (
                f"3b·√(ln(2/δ)/2n), n = {sample.independent:,}"
                if derived
                else f"3(q + √(ln(2/(δ−2q))/2M)), M = {sample.pairs:,}"
            )
            terms.append(Term(sample.name, form, formula, value, trivial))
    return tuple(terms)


def _complexities(found: Quantities) -> tuple[Term, ...]:
    b, w, m, d = found.query_norm, found.classifier_norm, found.spectral, found.dim
    k, items, queries = found.neighbours, found.items, found.queries
    fixed = sum(rademacher.fixed_mixing(b, p.vectors, p.frobenius, queries * items) for p in found.parts)
    free = sum(rademacher.free_mixing(b, p.vectors, p.frobenius, k, items, queries) for p in found.parts)
    u = sum(p.spectral * p.vectors for p in found.parts)
    alone = rademacher.free_vectors(b, u, queries)
    n = min(queries, items)
    shared = sum(rademacher.fixed_mixing(b, p.vectors, p.frobenius, n) for p in found.parts)
    frozen, trainable, plain = (
        "generator, frozen classifiers",
        "generator, trainable classifiers",
        "plain classifiers",
    )
    return (
        Term(frozen, "stated", "B‖M‖₂·√(d ln(K+1))", rademacher.frozen_stated(b, m, d, k)),
        Term(frozen, "derived", "BV‖M‖_F/√(NL), mixing fixed", fixed),
        Term(
            frozen,
            "derived",
            "mixing free: least of BV‖M‖_F·(1/√(NL) + √(2 ln(K+1)/N)), BV‖M‖₂/√N",
            min(free, alone),
        ),
        Term(frozen + ", fresh items", "derived", f"R̂ₙ = BV‖M‖_F/√n, mixing fixed, n = {n:,}", shared),
        Term(
            trainable,
            "stated",
            "B²W·√(L/M)·‖M‖₂·√(d ln(K+1))",
            rademacher.trainable_stated(b, w, m, d, k, items, queries),
        ),
        Term(
            trainable,
            "proof",
            "B²W·√(L/N)·‖M‖₂·√(d ln(K+1))",
            rademacher.trainable_proof(b, w, m, d, k, items, queries),
        ),
        Term(trainable, "derived", "BV‖M‖₂/√N", alone),
        Term(
            trainable + ", fresh items",
            "derived",
            "R̂ₙ = BV‖M‖₂ for every n",
            rademacher.free_vectors(b, u, 1),
        ),
        Term(plain, "stated", "LBW/√N", rademacher.extreme_stated(b, w, items, queries)),
        Term(plain, "derived", "BW/√N", rademacher.free_vectors(b, w, queries)),
    )


def _totals(
    found: Quantities, assumed: Assumed, deviations: tuple[Term, ...], complexities: tuple[Term, ...]
) -> tuple[Term, ...]:
    """Complexity and deviation together: what may be added to the empirical risk."""
    trivial = bounds.ignorance(found.p, assumed.positive_weight)
    steepest = assumed.scale * max(1.0, assumed.positive_weight)
    name = "frozen classifiers, "
    terms = []
    for sample, at in ((bounds.cartesian(found.queries, found.items), 0), (bounds.paired(found.queries), 3)):
        stated, derived = deviations[at], deviations[at + 2]
        terms.append(
            Term(name + sample.name, "stated", "R̂ + deviation", complexities[0].value + stated.value, 1.0)
        )
        shared = sum(
            rademacher.fixed_mixing(found.query_norm, p.vectors, p.frobenius, sample.independent)
            for p in found.parts
        )
        value = 2 * steepest * shared + derived.value
        terms.append(Term(name + sample.name, "derived", "2·max(1, C)·s·R̂ₙ + deviation", value, trivial))
    alone = found.query_norm * sum(part.spectral * part.vectors for part in found.parts)
    value = 2 * steepest * alone + deviations[2].value
    terms.append(
        Term("trainable classifiers, either", "derived", "the same; R̂ₙ does not fall with n", value, trivial)
    )
    return tuple(terms)


def _notes(found: Quantities, assumed: Assumed, kappa: int) -> tuple[str, ...]:
    pairs = found.queries * found.items
    stated = bounds.bad_set("stated", pairs, found.p, kappa)
    derived = bounds.bad_set("derived", pairs, found.p, kappa)
    b, ignorance = _range(found, assumed), bounds.ignorance(found.p, assumed.positive_weight)
    needed = bounds.kappa_needed(pairs, found.p, assumed.delta / 4)
    return (
        f"q as stated, at least M − κ positives: ln q = {stated.exponent:,.0f}.",
        f"q as a good set leaves it, more than κ = {kappa:,} positives: at most {derived.value:.3f}; "
        f"it is under δ/4 from κ = {needed:,} on.",
        f"With κ = 0, as the appendix takes it, a bad set is one with any positive: "
        f"probability {bounds.any_positive(pairs, found.p):.3f}.",
        f"The loss ranges over b = {b:.1f} with C = {assumed.positive_weight:g} and logits "
        f"of scale {assumed.scale:g}; the published forms take 1.",
        f"A derived bound is vacuous where it allows for as much as a model pays that knows nothing, "
        f"{ignorance:.3f}; a published one from 1 on. The derived deviation alone is under it from "
        f"n = {bounds.independent_needed(assumed.delta, b, ignorance):,} pairs on that share nothing.",
        "The paired sample is the theory's, each query with an item of its own; drawn from L items, no more than "
        "min(N, L) of its pairs share nothing either.",
    )


def _loose(
    found: Quantities, queries: Floats, items: Mixed, bank: Floats, draws: int, seed: int
) -> tuple[Loose, ...]:
    """Bounds and estimates for a few of the model's own queries and items, with ‖M‖_F of all parts."""
    whole = np.flatnonzero((items.rows >= 0).all(axis=1))[:SMALL]
    if not len(whole):
        return ()
    x = queries[:SMALL]
    used, rows = np.unique(items.rows[whole], return_inverse=True)
    tokens = Tokens(items.embeddings[whole], np.ascontiguousarray(bank[used]), rows.reshape(len(whole), -1))
    n, count, b = len(x), len(whole), found.query_norm
    v = max(found.classifier_norm, found.item_norm)
    m = sum(part.frobenius for part in found.parts)
    w = found.classifier_norm
    fixed = rademacher.fixed_mixing(b, v, m, n * count)
    free = rademacher.free_mixing(b, v, m, found.neighbours, count, n)
    every = rademacher.free_vectors(b, m * v, n)
    free = min(free, every)
    return (
        Loose("frozen, mixing fixed", fixed, of_mixtures(x, tokens, m, "mean", draws=draws, seed=seed)),
        Loose("frozen, attention", free, of_mixtures(x, tokens, m, "attention", draws=draws, seed=seed)),
        Loose("frozen, mixing free", free, of_mixtures(x, tokens, m, "free", draws=draws, seed=seed)),
        Loose(
            "trainable, attention",
            every,
            of_mixtures(x, tokens, m, "attention", train_classifiers=w, draws=draws, seed=seed),
        ),
        Loose(
            "plain classifiers",
            rademacher.free_vectors(b, w, n),
            of_free_vectors(x, count, w, draws=draws, seed=seed),
        ),
    )
