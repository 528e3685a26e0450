"""What a deployment needs beyond one training: machines, memory of each, hours and cost, for machines of a given size.

There are three ways, from the one that keeps the most accuracy to the one that fits everywhere:

    one machine   `metaxc train` on everything
    shards        encoder and constants from a part of the items; embeddings, classifiers and neighbours of all of them
                  by the machines of a cluster (`metaxc.scale.fit_ridge`, `find_neighbours`); one machine puts the model
                  together, and needs the memory of the stages `index` and `save`
    part          `metaxc train` on a part; `metaxc represent` on a cluster for all items, as new items without a
                  classifier of their own; a vector store that is divided among machines holds the vectors

Seconds and bytes are those of `metaxc.scale.planning`. What was measured ends at `MEASURED_ITEMS` items and two
threads. Everything else here is arithmetic: work that does not depend on other work is divided evenly by cores and
machines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from metaxc.errors import ConfigError
from metaxc.scale.planning import (
    CLICK_BYTES,
    CLICK_SECONDS,
    ENOUGH,
    FIXED,
    GIGABYTE,
    INDEX_SHARE,
    TEXT_BYTES,
    TRANSFORMER,
    Plan,
    encoding_seconds,
    largest_part,
    neighbour_seconds,
)
from metaxc.scale.shards import FOUND
from metaxc.tuning.grids import NEIGHBOURS

MEASURED_ITEMS = 1_000_000
"""Items of the largest training that was measured (benchmarks/results/scale.json); the part that a cluster's encoder
and constants are trained on has no more."""

PARALLEL_SHARE = 0.7
"""Share of the training's work that several threads divide. With two threads on two cores, 100,000 items took 534 s
for 817 s of processor time, and a million 3,107 s for 4,841 s: 0.69 and 0.72. For more cores it is arithmetic."""


@dataclass(frozen=True)
class Machine:
    """A machine that can be had.

    Args:
        memory: Bytes.
        cores: Processor cores.
        price: Of an hour, in any currency; None where it is not known.
    """

    memory: float
    cores: int = 1
    price: float | None = None

    @property
    def usable(self) -> float:
        """Bytes that may be planned."""
        return ENOUGH * self.memory


@dataclass(frozen=True)
class DeploymentStep:
    """A step: how many machines work on it, bytes of memory of each, and seconds on the clock."""

    name: str
    machines: int
    memory: float
    seconds: float


@dataclass(frozen=True)
class Way:
    """A way to deploy.

    Args:
        name: `one machine`, `shards` or `part`.
        loss: What it costs besides machines.
        steps: One after the other, before anything is served.
        serving_machines: That hold the vectors afterwards.
        serving_memory: Bytes of each of them.
    """

    name: str
    loss: str
    steps: tuple[DeploymentStep, ...]
    serving_machines: int
    serving_memory: float

    @property
    def machines(self) -> int:
        """The most that work at once."""
        return max(step.machines for step in self.steps)

    @property
    def memory(self) -> float:
        """Bytes of the machine that needs the most, in the steps."""
        return max(step.memory for step in self.steps)

    @property
    def seconds(self) -> float:
        """On the clock, of all steps."""
        return sum(step.seconds for step in self.steps)

    @property
    def machine_seconds(self) -> float:
        """Paid for: those of each step, times its machines."""
        return sum(step.seconds * step.machines for step in self.steps)

    def fits(self, machine: Machine) -> bool:
        """Whether every step, and serving, fits into such machines."""
        return max(self.memory, self.serving_memory) <= machine.usable

    def to_dict(self, machine: Machine) -> dict[str, Any]:
        """Plain Python for JSON; a cost is None without a price, and where the machines are too small."""
        priced = machine.price if self.fits(machine) else None
        return {
            "name": self.name,
            "loss": self.loss,
            "fits": self.fits(machine),
            "machines": self.machines,
            "memory": self.memory,
            "seconds": self.seconds,
            "machine_seconds": self.machine_seconds,
            "cost": None if priced is None else priced * self.machine_seconds / 3600,
            "serving_machines": self.serving_machines,
            "serving_memory": self.serving_memory,
            "serving_cost_per_hour": None if priced is None else priced * self.serving_machines,
            "steps": [asdict(step) for step in self.steps],
        }


def plan_deployment(plan: Plan, machine: Machine, machines: int | None = None) -> list[Way]:
    """The ways to deploy, those that keep the most accuracy first.

    The others are missing where one machine suffices, unless `machines` asks for them, and where no part fits.

    Args:
        plan: Of a training on everything.
        machine: What can be had.
        machines: How many work on `shards` and `part`; as many as the vectors need for serving when None.
    """
    if machine.memory <= 0 or machine.cores < 1 or (machines is not None and machines < 1):
        raise ConfigError(
            "A machine needs memory and cores",
            got=f"{machine.memory / GIGABYTE:g} GB, {machine.cores} cores, {machines} machines",
            expected="more than none of each",
        )
    whole = DeploymentStep("train", 1, plan.peak.memory, on_cores(plan.seconds, machine.cores))
    ways = [Way("one machine", "nothing", (whole,), 1, plan.serving)]
    part = largest_part(plan, machine.usable, MEASURED_ITEMS)
    if part is None or (machines is None and ways[0].fits(machine)):
        return ways
    holding = _holding_machines(plan, part, machine)
    count = machines or holding or 1
    share = part.workload.items / plan.workload.items
    train = DeploymentStep(
        f"train on {100 * share:.3g} % of the data",
        1,
        part.peak.memory,
        on_cores(part.seconds, machine.cores),
    )
    ways.append(
        Way(
            "shards",
            "the encoder and the constants are those of a part",
            (train, *_shard_steps(plan, machine, count)),
            1,
            plan.serving,
        )
    )
    if holding is not None:
        ways.append(
            Way(
                "part",
                "items beyond the part have no classifier of their own, whatever clicks they have; a vector store that "
                "is divided among the machines has to hold the vectors",
                (train, _represent_step(plan, part, machine, count)),
                holding,
                part.serving + _vector_bytes(plan) / holding,
            )
        )
    return ways


def on_cores(seconds: float, cores: int) -> float:
    """Seconds on the clock of work that takes so many seconds on one thread."""
    return seconds * (1 - PARALLEL_SHARE + PARALLEL_SHARE / cores)


def _shard_steps(plan: Plan, machine: Machine, count: int) -> Iterator[DeploymentStep]:
    """Embeddings, classifiers and neighbours by shards, one worker with all cores on each machine, and the model."""
    work, row = plan.workload, 4.0 * plan.workload.dim
    encoder = _encoder_bytes(plan)
    workers = max(1, min(machine.cores, int(machine.usable // encoder)))
    seconds = encoding_seconds(work.items + work.queries, plan)
    yield DeploymentStep("embed", count, workers * encoder, seconds / (count * workers))
    shards = count
    # A worker reads all clicks; of its shard, it has the queries that clicked, and the classifiers twice.
    asked = min(work.queries, work.clicks / shards)
    clicks = FIXED["classifiers"] * GIGABYTE + CLICK_BYTES * work.clicks
    memory = clicks + (2 * work.observed / shards + asked) * row
    yield DeploymentStep(
        "classifiers", count, memory, on_cores(CLICK_SECONDS * work.clicks / count, machine.cores)
    )
    # A search keeps the neighbours of all items in one shard; a merge sorts those of its items in all shards.
    found = work.items * (max(NEIGHBOURS) + 1) * float(FOUND.itemsize)
    search = (1 + INDEX_SHARE) * row * work.observed / shards + found
    merge = (2 + 8 / FOUND.itemsize) * found
    memory = FIXED["index"] * GIGABYTE + max(search, merge)
    # Every item is searched for in every shard.
    seconds = shards * neighbour_seconds(work.observed / shards, work.items, work.dim) / count
    yield DeploymentStep("neighbours", count, memory, on_cores(seconds, machine.cores))
    last = [stage for stage in plan.stages if stage.name in ("index", "save")]
    seconds = on_cores(sum(stage.seconds for stage in last), machine.cores)
    yield DeploymentStep("put together", 1, max(stage.memory for stage in last), seconds)


def _represent_step(plan: Plan, part: Plan, machine: Machine, count: int) -> DeploymentStep:
    """`metaxc represent` on Ray: a worker for each core, as far as each of them can hold the model of the part."""
    work = plan.workload
    workers = max(1, min(machine.cores, int(machine.usable // part.serving)))
    seconds = encoding_seconds(work.items, plan) + neighbour_seconds(
        part.workload.observed, work.items, work.dim
    )
    return DeploymentStep("represent", count, workers * part.serving, seconds / (count * workers))


def _holding_machines(plan: Plan, part: Plan, machine: Machine) -> int | None:
    """How many machines hold the vectors of all items, each beside the model of the part; None where none can."""
    room = machine.usable - part.serving
    return max(1, math.ceil(_vector_bytes(plan) / room)) if room > 0 else None


def _vector_bytes(plan: Plan) -> float:
    """Of the vectors of all items, an index over them, and their texts."""
    work = plan.workload
    return work.items * (4.0 * (work.dim + 1) * (1 + INDEX_SHARE) + TEXT_BYTES)


def _encoder_bytes(plan: Plan) -> float:
    transformer = TRANSFORMER if plan.config.encoder != "static" else 0.0
    return (FIXED["encode"] + transformer) * GIGABYTE
