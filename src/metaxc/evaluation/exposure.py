"""What the exposure of novel items costs and brings: the curve that training saved, and the test queries at its values.

The exposure is what a query adds to the score of an item without clicks (`metaxc.emmett.scoring`). The *curve* is the
quality by exposure on pseudo-novel items, which training saves in `about["exposure_curve"]`.

Propensity-scored precision counts a hit on a rarely clicked item more than one on a popular item, so a model that ranks
novel items too low loses it first. `compare_propensity` says where that has happened, and which exposure repairs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from metaxc.arrays import Mask, Rows
from metaxc.data.dataset import Dataset
from metaxc.emmett import Emmett
from metaxc.emmett.scoring import query_vectors
from metaxc.evaluation.overlap import check_overlap
from metaxc.evaluation.protocol import Evaluation, evaluate
from metaxc.evaluation.searches import Search, encode_test_queries_once, item_vectors
from metaxc.index import ArraySearch
from metaxc.tuning import Quality

TOLERANCE = 10.0
"""Percent of the encoder's PSP@1 that a model may lose before an evaluation says so."""

METRIC = "PSP@1"
NOVEL = "novel R@10"
TRIED_METRICS = ("P@1", "R@10", NOVEL, METRIC)
"""What is measured at other exposures."""

Point = Mapping[str, Any]
"""Figures at one "exposure", in percent by name; a point of the saved curve also has "chosen"."""


def exposure_curve(about: Mapping[str, Any]) -> list[Point]:
    """The curve that training saved in a model's `about`, by rising exposure; empty where there is none."""
    saved = about.get("exposure_curve") or []
    points = [{**point, "exposure": float(point["exposure"]) + 0.0} for point in saved]  # −0.0 becomes 0.0
    return sorted(points, key=lambda point: float(point["exposure"]))


def why_no_curve(about: Mapping[str, Any]) -> str:
    """Why a model has no exposure curve, as a sentence."""
    skipped = (about.get("pseudo_novel") or {}).get("skipped")
    reason = f"its constants were not chosen on pseudo-novel items ({skipped})" if skipped else ""
    return f"The model has no exposure curve: {reason or 'an older version of metaxc trained it'}."


def points_around_chosen(curve: Sequence[Point], count: int = 5) -> list[Point]:
    """At most `count` neighbouring points of a curve, the chosen one in the middle unless it is near an end."""
    chosen = next((place for place, point in enumerate(curve) if point["chosen"]), 0)
    start = max(0, min(chosen - count // 2, len(curve) - count))
    return list(curve[start : start + count])


def overall_accuracy(point: Point) -> float:
    """The mean of P@1 and R@10 over all queries: the accuracy that training gives up, within limits, for exposure."""
    return Quality(point["P@1"], point["R@10"]).mean


def format_exposure(exposure: float) -> str:
    """An exposure with three digits."""
    return f"{exposure + 0.0:.3g}"


def evaluate_exposures(
    model: Emmett, dataset: Dataset, exposures: Sequence[float], *, allow_overlap: bool = False
) -> list[dict[str, Any]]:
    """The generalized accuracy on the test queries by exposure: "exposure" and `TRIED_METRICS`, in percent.

    Queries are encoded once; each exposure is one search.

    Args:
        model: The model.
        dataset: A data set with a test log.
        exposures: What is added to the score of an item without clicks, one value after the other.
        allow_overlap: Also where the model was trained on the test part, which is otherwise an `OverlapError`.
    """
    check_overlap(model, dataset, allow_overlap=allow_overlap)
    items = ArraySearch(item_vectors(model, dataset))
    encode = encode_test_queries_once(lambda texts: model.encode_queries(texts, 1.0), dataset)

    def search_at(exposure: float) -> Search:
        def search(queries: Sequence[str], k: int, among: Mask | None) -> Rows:
            encoded = encode(queries)
            moved = query_vectors(encoded[:, :-1], exposure * encoded[:, -1])
            return items.search(moved, k, None if among is None else ~among)[0]

        return search

    return [
        _figures(exposure, evaluate(search_at(exposure), dataset, settings=["generalized"], intervals=False))
        for exposure in exposures
    ]


def _figures(exposure: float, result: Evaluation) -> dict[str, Any]:
    overall, by_kind = result["generalized"], result.by_kind
    novel = None if by_kind is None else by_kind.kinds["novel"]["R@10"].value
    figures = {name: novel if name == NOVEL else overall[name] for name in TRIED_METRICS}
    return {"exposure": exposure, **figures}


@dataclass(frozen=True)
class PropensityComparison:
    """Generalized PSP@1 of a model beside that of an encoder alone, and what other exposures would give.

    Args:
        baseline: The encoder's name, without an article.
        encoder: The encoder's PSP@1, percent.
        used: The model's figures at the exposure that was evaluated, as `evaluate_exposures` gives them.
        tried: The same at the exposures of the curve; empty where the model is not below, or has no curve.
        no_curve: Why nothing was tried although the model is below; empty otherwise.
    """

    baseline: str
    encoder: float
    used: Point
    tried: Sequence[Point] = field(default_factory=list)
    no_curve: str = ""

    @property
    def relative(self) -> float | None:
        """The model's PSP@1 minus the encoder's, in percent of the encoder's; None where that is 0."""
        return 100 * (self.used[METRIC] - self.encoder) / self.encoder if self.encoder else None

    @property
    def below(self) -> bool:
        """Whether the model is below the encoder by more than `TOLERANCE`."""
        return not self._is_enough(self.used)

    @property
    def restored_by(self) -> Point | None:
        """The figures at the exposure that restores PSP@1 with the least change; None where none does."""
        enough = [point for point in self.tried if self._is_enough(point)]
        return min(enough, key=self._change, default=None)

    def _is_enough(self, point: Point) -> bool:
        return bool(100 * point[METRIC] >= (100 - TOLERANCE) * self.encoder)

    def _change(self, point: Point) -> float:
        return abs(float(point["exposure"]) - float(self.used["exposure"]))

    def describe(self) -> str:
        """The comparison in one or two sentences."""
        start = f"Generalized PSP@1 is {self.used[METRIC]:.1f} at exposure {format_exposure(self.used['exposure'])}"
        if not self.below or self.relative is None:
            return f"{start}, compared with {self.encoder:.1f} of the {self.baseline}."
        start += f", {-self.relative:.0f} % below the {self.baseline} ({self.encoder:.1f})."
        if not self.tried:
            return f"{start} {self.no_curve} So no other exposure was tried."
        found = self.restored_by
        if found is None:
            best = max(self.tried, key=lambda point: (point[METRIC], -self._change(point)))
            return (
                f"{start} None of the {len(self.tried)} exposures of the model's curve restores it to within "
                f"{TOLERANCE:g} %; the best is {best[METRIC]:.1f} at {format_exposure(best['exposure'])}."
            )
        changes = ", ".join(
            f"{name} from {_percent(self.used[name])} to {_percent(found[name])}"
            for name in TRIED_METRICS
            if name != METRIC
        )
        return (
            f"{start} Exposure {format_exposure(found['exposure'])} restores it to {found[METRIC]:.1f} "
            f"(at most {TOLERANCE:g} % below), and changes {changes}."
        )

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON."""
        found = self.restored_by
        return {
            METRIC: self.used[METRIC],
            "baseline": self.baseline,
            f"baseline {METRIC}": self.encoder,
            "relative_difference": self.relative,
            "tolerance": TOLERANCE,
            "below": self.below,
            "restored_by": None if found is None else found["exposure"],
            "exposures": [dict(point) for point in self.tried],
        }


def compare_propensity(
    model: Emmett,
    dataset: Dataset,
    own: Evaluation,
    other: Evaluation,
    baseline: str,
    *,
    exposure: float | None = None,
    print_status: Callable[[str], None] = lambda line: None,
) -> PropensityComparison:
    """Compare the generalized PSP@1 of a model with an encoder's; only where it is below, try the curve's exposures.

    The exposures are compared on the test queries: a diagnosis, not a choice. Figures at the exposure that it names are
    a little optimistic.

    Args:
        model: The model.
        dataset: What both were evaluated on.
        own: The model's evaluation.
        other: The encoder's evaluation.
        baseline: The encoder's name, without an article.
        exposure: The exposure that `own` was evaluated at; None for the value chosen in training.
        print_status: Called with a line before the exposures are tried.
    """
    used = 0.0 + (model.calibration.exposure if exposure is None else exposure)  # −0.0 becomes 0.0
    found = PropensityComparison(baseline, other["generalized"][METRIC], _figures(used, own))
    if not found.below:
        return found
    exposures = [float(point["exposure"]) for point in exposure_curve(model.about)]
    if not exposures:
        return replace(found, no_curve=why_no_curve(model.about))
    print_status(f"{METRIC} is below the {baseline}: evaluating {len(exposures)} exposures")
    return replace(found, tried=evaluate_exposures(model, dataset, exposures, allow_overlap=True))


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
