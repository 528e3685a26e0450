"""How a catalog leads its items through their lives."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class CatalogSettings(BaseModel):
    """Settings that a catalog keeps from its creation on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # From 3 clicks on, an item's own classifier ranks it as well as its neighbours and its clicks together do, and
    # leaves other items their places (`benchmarks/life.py`).
    observe_after: int = Field(
        3, ge=1, description="clicks after which an item has a classifier of its own and informs others"
    )
