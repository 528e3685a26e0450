"""How well a class of models can follow random signs: the lemmas and the corollary, as published and as derived.

The published terms stand in O(·); they are computed with a constant of 1. The derived ones are upper bounds on the
empirical Rademacher complexity over the N·L pairs of N queries and L items with nothing left out. Derivations:
docs/theory.md. In all of them

    B  the largest norm of a query embedding            d  its dimensions
    W  the largest norm of a classifier                 K  selected classifiers per item
    V  the largest norm of what is mixed: the item's embedding and the classifiers
    ‖M‖₂, ‖M‖_F  norms of the linear layer behind the mixing, ‖M‖_F ≤ √d · ‖M‖₂
"""

from __future__ import annotations

from math import log, sqrt


def frozen_stated(b: float, m_spectral: float, dim: int, k: int) -> float:
    """Published lemma, frozen classifiers: B · ‖M‖₂ · √(d ln(K + 1)). It knows no sample size."""
    return b * m_spectral * sqrt(dim * log(k + 1))


def trainable_stated(
    b: float, w: float, m_spectral: float, dim: int, k: int, items: int, queries: int
) -> float:
    """Published corollary, trainable classifiers: B²W · √(L / M) · ‖M‖₂ · √(d ln(K + 1)) with M = N·L pairs."""
    return b * w * sqrt(items / (queries * items)) * frozen_stated(b, m_spectral, dim, k)


def trainable_proof(
    b: float, w: float, m_spectral: float, dim: int, k: int, items: int, queries: int
) -> float:
    """The corollary as its proof ends: √(L / N) in the place of √(L / M), larger by √L."""
    return b * w * sqrt(items / queries) * frozen_stated(b, m_spectral, dim, k)


def extreme_stated(b: float, w: float, items: int, queries: int) -> float:
    """Published lemma, plain extreme classifiers: L · B · W / √N. It is the complexity of the *sum* of L scores."""
    return items * b * w / sqrt(queries)


def fixed_mixing(b: float, v: float, m_frobenius: float, pairs: int) -> float:
    """Derived: B · V · ‖M‖_F / √pairs. The mixing is fixed and one linear layer, shared by all items, is learnt.

    Args:
        b: B.
        v: V.
        m_frobenius: ‖M‖_F.
        pairs: N·L for the Cartesian sample, N for the paired one.
    """
    return b * v * m_frobenius / sqrt(pairs)


def free_mixing(b: float, v: float, m_frobenius: float, k: int, items: int, queries: int) -> float:
    """Derived, frozen classifiers: B · V · ‖M‖_F · (1 / √(N·L) + √(2 ln(K + 1) / N)).

    Every item may weigh its K + 1 vectors as it likes, so it holds for any attention; one linear layer is learnt.
    """
    return b * v * m_frobenius * (1 / sqrt(queries * items) + sqrt(2 * log(k + 1) / queries))


def free_vectors(b: float, u: float, queries: int) -> float:
    """Derived, plain extreme classifiers and trainable ones: B · U / √N.

    Every item has a vector of its own, of norm U at most: a classifier (U = W), or whatever is made of trainable ones
    (U = ‖M‖₂ · V). It does not fall with the number of items.
    """
    return b * u / sqrt(queries)
