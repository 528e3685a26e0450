"""The constants by which observed and novel items rank together."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Calibration(BaseModel):
    """How observed and novel items rank together. Chosen on pseudo-novel items by `metaxc.tuning`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    own: float = Field(1.5, ge=0, description="weight of an observed item's own classifier")
    prior_clicks: float = Field(30.0, ge=0, description="clicks at which it has half that weight")
    neighbour_prior: float = Field(10.0, ge=0, description="the same for a neighbour's classifier")
    novel_scale: float = Field(1.0, gt=0, description="scale of the meta-classifiers")
