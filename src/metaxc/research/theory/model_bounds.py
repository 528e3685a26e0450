"""All bounds of one trained model, which `metaxc theory` prints."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from metaxc.arrays import Floats
from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.research.theory import bounds
from metaxc.research.theory.empirical import (
    Estimate,
    Mixing,
    MixtureInputs,
    estimate_free_vectors,
    estimate_mixtures,
)
from metaxc.research.theory.model_norms import (
    SAMPLE_SIZE,
    GeneratorInputs,
    Quantities,
    measure_quantities,
    sample_generator_inputs,
)

ESTIMATE_SIZE = 64
"""Queries and items of the empirical estimate, which runs gradient ascent for every draw of signs."""


class BoundAssumptions(BaseModel):
    """What the bounds need in addition to the model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    delta: float = Field(0.05, ge=1e-12, le=0.999, description="probability δ with which a bound may fail")
    kappa: int | None = Field(
        None,
        ge=0,
        description="largest number κ of positives in a good set; as many as a sample is expected to have if "
        "not given",
    )
    positive_weight: float = Field(4.0, ge=1e-6, description="weight C of clicks in the loss")
    scale: float = Field(20.0, ge=1e-6, description="multiplies the scores to give logits")


@dataclass(frozen=True)
class BoundTerm:
    """One number of the theory.

    Args:
        name: What is bounded.
        form: stated, proof or derived.
        formula: The formula that was computed.
        value: The value; may be infinite.
        trivial: The bound is vacuous from this value on; None for a term that is only a part of a bound.
    """

    name: str
    form: str
    formula: str
    value: float
    trivial: float | None = None

    @property
    def vacuous(self) -> bool | None:
        """Whether the bound is vacuous; None for a part of a bound."""
        return None if self.trivial is None else not self.value < self.trivial

    def to_dict(self) -> dict[str, Any]:
        """The term as JSON; infinity is null."""
        value = self.value if isfinite(self.value) else None
        return {**asdict(self), "value": value, "vacuous": self.vacuous}


@dataclass(frozen=True)
class EstimatedTerm:
    """A derived complexity with its empirical estimate, on the same small sample of queries and items."""

    name: str
    bound: float
    estimate: Estimate

    @property
    def ratio(self) -> float:
        """The bound divided by the estimate."""
        return self.bound / self.estimate.mean


@dataclass(frozen=True)
class ModelBounds:
    """The quantities of a model and every bound computed from them."""

    quantities: Quantities
    assumptions: BoundAssumptions
    kappa: int
    deviations: tuple[BoundTerm, ...]
    complexities: tuple[BoundTerm, ...]
    totals: tuple[BoundTerm, ...]
    notes: tuple[str, ...]
    estimates: tuple[EstimatedTerm, ...]

    def to_dict(self) -> dict[str, Any]:
        """The bounds as JSON."""
        return {
            "quantities": {**asdict(self.quantities), "p": self.quantities.p, "pairs": self.pairs},
            "assumed": {**self.assumptions.model_dump(), "kappa": self.kappa},
            "deviations": [term.to_dict() for term in self.deviations],
            "complexities": [term.to_dict() for term in self.complexities],
            "totals": [term.to_dict() for term in self.totals],
            "notes": list(self.notes),
            "empirical": [
                {"name": term.name, "bound": term.bound, "ratio": term.ratio, **asdict(term.estimate)}
                for term in self.estimates
            ],
        }

    @property
    def pairs(self) -> int:
        """M."""
        return self.quantities.queries * self.quantities.items


def compute_bounds(
    model: Emmett,
    dataset: Dataset,
    assumptions: BoundAssumptions | None = None,
    *,
    draws: int = 10,
    seed: int = 0,
) -> ModelBounds:
    """Measure the quantities of a model and compute every bound from them.

    Args:
        model: A model trained on `dataset`.
        dataset: The data set with its novel items.
        assumptions: What the bounds need in addition to the model.
        draws: Number of sign matrices for the empirical estimate; 0 skips it.
        seed: Seed of the samples and the signs.
    """
    assumptions = assumptions or BoundAssumptions()
    log = dataset.observed_log()
    rows = np.sort(np.random.default_rng(seed).permutation(len(log))[:SAMPLE_SIZE])
    queries = model.encode_queries([log.queries.texts[row] for row in rows])[:, :-1]  # without the exposure
    inputs = sample_generator_inputs(model, seed=seed)
    quantities = measure_quantities(model, queries, inputs, count=len(log), clicks=log.clicks.nnz)
    kappa = quantities.clicks if assumptions.kappa is None else assumptions.kappa
    deviations = _deviations(quantities, assumptions)
    complexities = _complexities(quantities)
    return ModelBounds(
        quantities,
        assumptions,
        kappa,
        deviations,
        complexities,
        _totals(quantities, assumptions, deviations, complexities),
        _notes(quantities, assumptions, kappa),
        _estimates(quantities, queries, inputs, model.neighbour_vectors, draws, seed) if draws else (),
    )


def _loss_range(quantities: Quantities, assumptions: BoundAssumptions) -> float:
    largest_logit = assumptions.scale * quantities.query_norm * quantities.meta_norm
    return bounds.loss_range(largest_logit, assumptions.positive_weight)


def _fixed_mixing(quantities: Quantities, pairs: int) -> float:
    """The derived complexity of all parts with fixed mixing weights."""
    return sum(
        bounds.fixed_mixing_complexity(quantities.query_norm, part.vectors, part.frobenius, pairs)
        for part in quantities.parts
    )


def _deviations(quantities: Quantities, assumptions: BoundAssumptions) -> tuple[BoundTerm, ...]:
    samples = (
        bounds.cartesian_sample(quantities.queries, quantities.items),
        bounds.paired_sample(quantities.queries),
    )
    terms = []
    for sample in samples:
        for form in bounds.FORMS:
            loss_range, trivial = 1.0, 1.0
            formula = f"3(q + √(ln(2/(δ−2q))/2M)), M = {sample.pairs:,}"
            if form == "derived":
                loss_range = _loss_range(quantities, assumptions)
                trivial = bounds.uninformed_risk(quantities.p, assumptions.positive_weight)
                formula = f"3b·√(ln(2/δ)/2n), n = {sample.independent:,}"
            kappa = round(quantities.p * sample.pairs) if assumptions.kappa is None else assumptions.kappa
            value = bounds.deviation(form, sample, quantities.p, kappa, assumptions.delta, loss_range)
            terms.append(BoundTerm(sample.name, form, formula, value, trivial))
    return tuple(terms)


def _complexities(quantities: Quantities) -> tuple[BoundTerm, ...]:
    b, w, m, d = quantities.query_norm, quantities.classifier_norm, quantities.spectral, quantities.dim
    k, items, queries = quantities.neighbours, quantities.items, quantities.queries
    free = sum(
        bounds.free_mixing_complexity(b, part.vectors, part.frobenius, k, items, queries)
        for part in quantities.parts
    )
    u = sum(part.spectral * part.vectors for part in quantities.parts)
    free_vectors = bounds.free_vectors_complexity(b, u, queries)
    n = min(queries, items)
    frozen, trainable, plain = (
        "generator, frozen classifiers",
        "generator, trainable classifiers",
        "plain classifiers",
    )
    return (
        BoundTerm(frozen, "stated", "B‖M‖₂·√(d ln(K+1))", bounds.stated_frozen_complexity(b, m, d, k)),
        BoundTerm(
            frozen, "derived", "BV‖M‖_F/√(NL), mixing fixed", _fixed_mixing(quantities, queries * items)
        ),
        BoundTerm(
            frozen,
            "derived",
            "mixing free: the smaller of BV‖M‖_F·(1/√(NL) + √(2 ln(K+1)/N)), BV‖M‖₂/√N",
            min(free, free_vectors),
        ),
        BoundTerm(
            frozen + ", novel items",
            "derived",
            f"R̂ₙ = BV‖M‖_F/√n, mixing fixed, n = {n:,}",
            _fixed_mixing(quantities, n),
        ),
        BoundTerm(
            trainable,
            "stated",
            "B²W·√(L/M)·‖M‖₂·√(d ln(K+1))",
            bounds.stated_trainable_complexity(b, w, m, d, k, items, queries),
        ),
        BoundTerm(
            trainable,
            "proof",
            "B²W·√(L/N)·‖M‖₂·√(d ln(K+1))",
            bounds.proof_trainable_complexity(b, w, m, d, k, items, queries),
        ),
        BoundTerm(trainable, "derived", "BV‖M‖₂/√N", free_vectors),
        BoundTerm(
            trainable + ", novel items",
            "derived",
            "R̂ₙ = BV‖M‖₂ for every n",
            bounds.free_vectors_complexity(b, u, 1),
        ),
        BoundTerm(plain, "stated", "LBW/√N", bounds.stated_plain_complexity(b, w, items, queries)),
        BoundTerm(plain, "derived", "BW/√N", bounds.free_vectors_complexity(b, w, queries)),
    )


def _totals(
    quantities: Quantities,
    assumptions: BoundAssumptions,
    deviations: tuple[BoundTerm, ...],
    complexities: tuple[BoundTerm, ...],
) -> tuple[BoundTerm, ...]:
    """Complexity and deviation together: the upper bound on the risk minus the empirical risk."""
    trivial = bounds.uninformed_risk(quantities.p, assumptions.positive_weight)
    lipschitz = assumptions.scale * max(1.0, assumptions.positive_weight)
    name = "frozen classifiers, "
    terms = []
    for sample, at in (
        (bounds.cartesian_sample(quantities.queries, quantities.items), 0),
        (bounds.paired_sample(quantities.queries), 3),
    ):
        stated, derived = deviations[at], deviations[at + 2]
        value = complexities[0].value + stated.value
        terms.append(BoundTerm(name + sample.name, "stated", "R̂ + deviation", value, 1.0))
        value = 2 * lipschitz * _fixed_mixing(quantities, sample.independent) + derived.value
        formula = "2·max(1, C)·s·R̂ₙ + deviation"
        terms.append(BoundTerm(name + sample.name, "derived", formula, value, trivial))
    free_vectors = quantities.query_norm * sum(part.spectral * part.vectors for part in quantities.parts)
    value = 2 * lipschitz * free_vectors + deviations[2].value
    formula = "the same; R̂ₙ does not fall with n"
    return (*terms, BoundTerm("trainable classifiers, either sample", "derived", formula, value, trivial))


def _notes(quantities: Quantities, assumptions: BoundAssumptions, kappa: int) -> tuple[str, ...]:
    pairs, p = quantities.queries * quantities.items, quantities.p
    stated = bounds.bad_set_probability("stated", pairs, p, kappa)
    derived = bounds.bad_set_probability("derived", pairs, p, kappa)
    b, trivial = _loss_range(quantities, assumptions), bounds.uninformed_risk(p, assumptions.positive_weight)
    required_kappa = bounds.smallest_kappa(pairs, p, assumptions.delta / 4)
    required_pairs = bounds.required_independent_pairs(assumptions.delta, b, trivial)
    return (
        f"q as stated (at least M − κ positives): ln q = {stated.exponent:,.0f}.",
        f"q as the complement of a good set (more than κ = {kappa:,} positives): at most {derived.value:.3f}; "
        f"it is below δ/4 from κ = {required_kappa:,} on.",
        f"With κ = 0, as in the appendix, every sample with a positive pair is bad: "
        f"probability {bounds.any_positive_probability(pairs, p):.3f}.",
        f"The range of the loss is b = {b:.1f} with C = {assumptions.positive_weight:g} and logits "
        f"of scale {assumptions.scale:g}; the published forms assume 1.",
        f"A derived bound is vacuous when it is at least the risk of a model that scores every pair 0, "
        f"{trivial:.3f}; a published one is vacuous from 1 on. The derived deviation alone is below that from "
        f"n = {required_pairs:,} pairs that share nothing.",
        "The paired sample is the theory's: each query with an item drawn for it. When the items are drawn from L "
        "items, at most min(N, L) of its pairs share nothing.",
    )


def _estimates(
    quantities: Quantities,
    queries: Floats,
    inputs: GeneratorInputs,
    classifiers: Floats,
    draws: int,
    seed: int,
) -> tuple[EstimatedTerm, ...]:
    """Bounds and estimates for a few of the model's own queries and items, with ‖M‖_F of all parts."""
    complete = np.flatnonzero((inputs.rows >= 0).all(axis=1))[:ESTIMATE_SIZE]
    if not len(complete):
        return ()
    x = queries[:ESTIMATE_SIZE]
    used, rows = np.unique(inputs.rows[complete], return_inverse=True)
    mixtures = MixtureInputs(
        inputs.embeddings[complete],
        np.ascontiguousarray(classifiers[used]),
        rows.reshape(len(complete), -1),
    )
    n, count, b = len(x), len(complete), quantities.query_norm
    w = quantities.classifier_norm
    v = max(w, quantities.item_norm)
    m = sum(part.frobenius for part in quantities.parts)
    free_vectors = bounds.free_vectors_complexity(b, m * v, n)
    free = min(bounds.free_mixing_complexity(b, v, m, quantities.neighbours, count, n), free_vectors)

    def estimate(name: str, bound: float, mixing: Mixing, radius: float | None = None) -> EstimatedTerm:
        found = estimate_mixtures(x, mixtures, m, mixing, train_classifiers=radius, draws=draws, seed=seed)
        return EstimatedTerm(name, bound, found)

    return (
        estimate("frozen, mixing fixed", bounds.fixed_mixing_complexity(b, v, m, n * count), "mean"),
        estimate("frozen, attention", free, "attention"),
        estimate("frozen, mixing free", free, "free"),
        estimate("trainable, attention", free_vectors, "attention", w),
        EstimatedTerm(
            "plain classifiers",
            bounds.free_vectors_complexity(b, w, n),
            estimate_free_vectors(x, count, w, draws=draws, seed=seed),
        ),
    )
