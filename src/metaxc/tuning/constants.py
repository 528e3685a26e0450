"""The constants of a model, as they are saved and shown."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from metaxc.emmett import Calibration, ExpansionConfig
from metaxc.tuning.grids import CombineChoice


@dataclass(frozen=True)
class Constants:
    """The constants that the folds decided.

    Args:
        generator: The kind of generator.
        combine: The combine that it is, or starts at.
        calibration: How observed and novel items rank together.
        expansion: How queries are expanded; None for no expansion.
        pseudo_novel: The quality on the pseudo-novel items that the constants were chosen on, or why there is none.
        compared: The quality of each kind of generator.
        exposure_curve: The quality by exposure, for people: what each value costs and brings.
        adaptation: How far the encoder is adapted to the clicks, 0 (not at all) to 1 (as trained).
        adaptations: The quality of each extent that was compared.
        word_matches: How much shared rare words count in the encoder.
        follows_response: Whether the exposure of a query is proportional to the classifiers' response to it.
    """

    generator: str
    combine: CombineChoice
    calibration: Calibration
    expansion: ExpansionConfig | None
    pseudo_novel: dict[str, Any]
    compared: dict[str, Any] = field(default_factory=dict)
    exposure_curve: list[dict[str, Any]] = field(default_factory=list)
    adaptation: float = 1.0
    adaptations: dict[str, Any] = field(default_factory=dict)
    follows_response: bool = True
    word_matches: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain Python for JSON."""
        return {
            "generator": self.generator,
            "combine": asdict(self.combine),
            "calibration": self.calibration.model_dump(),
            "expansion": None if self.expansion is None else self.expansion.model_dump(),
            "pseudo_novel": self.pseudo_novel,
            "compared": self.compared,
            "exposure_curve": self.exposure_curve,
            "adaptation": self.adaptation,
            "adaptations": self.adaptations,
            "follows_response": self.follows_response,
            "word_matches": self.word_matches,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Constants:
        """Restore what `to_dict` returned."""
        return cls(
            values["generator"],
            CombineChoice(**values["combine"]),
            Calibration(**values["calibration"]),
            None if values["expansion"] is None else ExpansionConfig(**values["expansion"]),
            values["pseudo_novel"],
            values["compared"],
            values["exposure_curve"],
            values["adaptation"],
            values["adaptations"],
            values["follows_response"],
            values["word_matches"],
        )

    def __str__(self) -> str:
        calibration = self.calibration.model_dump(
            exclude={"exposure_bonus", "response_unit"}, exclude_none=True
        )
        numbers = {**asdict(self.combine), **calibration, "adaptation": self.adaptation}
        numbers["word_matches"] = self.word_matches
        numbers["query expansion"] = 0.0 if self.expansion is None else self.expansion.strength
        parts = [f"{name.replace('_', ' ')} {value:g}" for name, value in numbers.items()]
        return ", ".join([self.generator.replace("_", " "), *parts])
