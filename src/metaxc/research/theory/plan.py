"""What a study changes, and what each training gives."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

Sample = Literal["one-vs-all", "paired", "paired, drawn"]


@dataclass(frozen=True)
class Setting:
    """One training.

    Args:
        neighbours: K.
        depth: Transformer layers.
        items: Observed items, L.
        frozen: Whether the classifiers stay as they are.
        sample: The pairs trained on: all, one click and one other pair per query, or one random pair per query.
    """

    neighbours: int = 3
    depth: int = 1
    items: int = 2_000
    frozen: bool = True
    sample: Sample = "one-vs-all"


@dataclass(frozen=True)
class Study:
    """How a study is done.

    Args:
        dim: Principal axes that embeddings are reduced to.
        items: Observed items where nothing else is said.
        fewer: Other numbers of observed items.
        neighbours: Other K than the base's 3.
        depths: Other depths than the base's 1.
        held_out: Items that nothing is learnt from.
        queries: To train on.
        held_out_queries: To measure with.
        steps: Of Adam, the same for every setting.
        learning_rate: Of Adam, falling linearly to 0.
        seeds: Repetitions, each with items, queries and start of its own.
    """

    dim: int = 96
    items: int = 2_000
    fewer: tuple[int, ...] = (250, 500, 1_000)
    neighbours: tuple[int, ...] = (1, 10, 20)
    depths: tuple[int, ...] = (2,)
    held_out: int = 1_000
    queries: int = 4_000
    held_out_queries: int = 2_000
    steps: int = 150
    learning_rate: float = 5e-4
    seeds: int = 5

    def settings(self) -> list[Setting]:
        """The base first, then one change at a time."""
        base = Setting(items=self.items)
        return [
            base,
            *(replace(base, neighbours=k) for k in self.neighbours),
            *(replace(base, depth=depth) for depth in self.depths),
            *(replace(base, items=items) for items in self.fewer),
            replace(base, frozen=False),
            replace(base, sample="paired"),
            replace(base, sample="paired, drawn"),
        ]


QUICK = Study(
    dim=64, items=600, fewer=(150,), neighbours=(10,), depths=(), held_out=300, queries=1_000,
    held_out_queries=500, steps=60, seeds=3,
)  # fmt: skip
"""To see that it works; its verdicts mean little."""


class Row(NamedTuple):
    """What one training gave: risks, their gap, R@10 among held-out items in percent, and the norms for the bounds."""

    setting: Setting
    seed: int
    train_risk: float
    new_risk: float
    recall: float
    norms: dict[str, float]

    @property
    def gap(self) -> float:
        """Held-out risk less training risk."""
        return self.new_risk - self.train_risk

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "setting": asdict(self.setting), "gap": self.gap}

    @classmethod
    def of(cls, row: dict[str, Any]) -> Row:
        """What `to_dict` made."""
        given = {name: row[name] for name in cls._fields if name != "setting"}
        return cls(setting=Setting(**row["setting"]), **given)
