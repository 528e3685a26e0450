"""Learning curves for people: few points, however many steps there were."""

from __future__ import annotations

import numpy as np

CURVE_POINTS = 100


def learning_curves(losses: dict[str, list[float]]) -> dict[str, dict[str, list[float]]]:
    """The mean loss over each of at most `CURVE_POINTS` spans of steps, of everything that was trained."""
    curves: dict[str, dict[str, list[float]]] = {}
    for name, values in losses.items():
        if values:
            spans = np.array_split(np.arange(len(values)), min(CURVE_POINTS, len(values)))
            means = [round(float(np.mean([values[step] for step in span])), 4) for span in spans]
            curves[name] = {"step": [int(span[-1]) + 1 for span in spans], "loss": means}
    return curves
