"""The section on the exposure of novel items: the curve that training saved, and PSP@1 beside the bare encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.evaluation.exposure import (
    Point,
    PropensityComparison,
    compare_propensity,
    exposure_curve,
    overall_accuracy,
    why_no_curve,
)
from metaxc.research.report.comparison import System


@dataclass(frozen=True)
class CurvePoint:
    """One exposure, measured on pseudo-novel items.

    Args:
        exposure: What is added to the score of an item without clicks.
        overall: Mean of P@1 and R@10, percent.
        figures: Percent, by the names of the saved curve.
        chosen: Whether it is the model's own.
    """

    exposure: float
    overall: float
    figures: Point
    chosen: bool


@dataclass(frozen=True)
class ExposureSection:
    """The section's numbers.

    Args:
        exposure: The model's own exposure.
        given: Whether the user gave it, in place of a choice on pseudo-novel items.
        points: The saved curve by rising exposure; empty where the model has none.
        missing: Why there is no curve; empty where there is one.
        propensity: Generalized PSP@1 on the test queries, beside the bare encoder.
    """

    exposure: float
    given: bool
    points: Sequence[CurvePoint]
    missing: str
    propensity: PropensityComparison


def describe_exposure(
    model: Emmett,
    system: System,
    bare: System,
    dataset: Dataset,
    print_status: Callable[[str], None] = lambda line: None,
) -> ExposureSection:
    """Read a model's curve, and compare its PSP@1 with the bare encoder's.

    Args:
        model: The model.
        system: The model, evaluated.
        bare: The bare encoder, evaluated.
        dataset: What both were evaluated on.
        print_status: Called with a line before other exposures are evaluated.
    """
    points = [
        CurvePoint(float(point["exposure"]), overall_accuracy(point), point, bool(point["chosen"]))
        for point in exposure_curve(model.about)
    ]
    return ExposureSection(
        model.calibration.exposure,
        (model.about.get("config") or {}).get("exposure") is not None,
        points,
        "" if points else why_no_curve(model.about),
        compare_propensity(
            model,
            dataset,
            system.evaluation,
            bare.evaluation,
            bare.name.removeprefix("the "),
            print_status=print_status,
        ),
    )
