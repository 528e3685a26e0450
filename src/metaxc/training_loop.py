"""The gradient-descent loop of everything that is trained: linear decay, several optimizers, a progress bar; and early
stopping, which keeps the weights that did best on held-out data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.optim import Optimizer
from tqdm import tqdm

from metaxc.arrays import Rows


class AdamWConfig(BaseModel):
    """AdamW with a linear warm-up and clipped gradients."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weight_decay: float = Field(
        0.01, ge=0, description="decoupled decay of weight matrices; torch's default. Vectors do not decay"
    )
    warmup: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="share of the steps in which the learning rate rises: a fixed number would be most of a short run",
    )
    largest_gradient: float = Field(
        1.0,
        gt=0,
        description="gradients longer than this are shortened to it, so that no step can spoil a run",
    )


class EarlyStopping(BaseModel):
    """Validation on held-out data while training. The best weights are kept; the start is one of the candidates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    share: float = Field(0.1, gt=0, lt=1, description="share of the data that is held out")
    most_held_out: int = Field(
        1_000, ge=1, description="held out at most: the standard error is then below 1.6 points"
    )
    evaluations: int = Field(20, ge=1, description="how often a run of full length is validated")
    patience: int = Field(
        10,
        ge=1,
        description="validations in a row without a better one after which training stops; fewer would stop many runs "
        "before the learning rate has decayed, which is when they gain",
    )
    least_steps: int = Field(
        300,
        ge=1,
        description="steps of a run of full length, however few data: a few passes of one batch each teach nothing",
    )


def plan_steps(per_pass: int, passes: int, most: int | None, stopping: EarlyStopping | None) -> int:
    """The steps of a run of full length: those of some passes over the data, at least what early stopping asks for, and
    at most `most`."""
    steps = per_pass * passes
    if stopping is not None:
        steps = max(steps, stopping.least_steps)
    return steps if most is None else min(steps, most)


class BestWeights:
    """Validates a training run at intervals, keeps the best weights, and stops the run when it no longer improves.

    Args:
        parameters: What is trained.
        measure: How good the present weights are; higher is better.
        steps: Of a run of full length.
        config: How often to validate, and when to stop.
    """

    def __init__(
        self, parameters: Sequence[Tensor], measure: Callable[[], float], steps: int, config: EarlyStopping
    ):
        self.parameters, self.measure, self.steps, self.config = parameters, measure, steps, config
        self.every = max(1, -(-steps // config.evaluations))
        self.quality, self.step, self.missed = measure(), 0, 0
        self.kept = self._copy()

    def after_step(self, done: int, loss: float) -> bool:
        """For `run_training`: whether to stop now. A loss that is not finite stops at once."""
        if not math.isfinite(loss):
            return True
        if done % self.every and done != self.steps:
            return False
        found = self.measure()
        self.missed = 0 if found > self.quality else self.missed + 1
        # Of equals the later weights have learnt more: where everything is found at once, lengths still grow.
        if found >= self.quality:
            self.quality, self.step, self.kept = found, done, self._copy()
        return self.missed >= self.config.patience

    def restore(self) -> None:
        """Set the parameters to the best weights."""
        with torch.no_grad():
            for parameter, kept in zip(self.parameters, self.kept, strict=True):
                parameter.copy_(kept)

    def _copy(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.parameters]


def make_adamw(parameters: Sequence[Tensor], rate: float, config: AdamWConfig) -> torch.optim.AdamW:
    """AdamW over parameters of which only the matrices decay: gains, biases and scales have no size to bound."""
    groups = [
        {"params": [one for one in parameters if one.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [one for one in parameters if one.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=rate)


def learning_rate(start: float, step: int, steps: int, warmup: float = 0.0) -> float:
    """The rate of a step: rises linearly to `start` in the first `warmup` share of the steps, then falls to 0."""
    rising = int(warmup * steps)
    if step < rising:
        return start * (step + 1) / rising
    return start * (1 - (step - rising) / (steps - rising))


def run_training(
    compute_loss: Callable[[int], Tensor],
    optimizers: Sequence[Optimizer],
    steps: int,
    *,
    label: str,
    first_step: int = 0,
    warmup: float = 0.0,
    after_backward: Callable[[], None] = lambda: None,
    after_step: Callable[[int, float], bool] = lambda done, loss: False,
    progress: bool = True,
) -> list[float]:
    """Minimise a loss; every parameter group decays linearly from the rate that it was created with.

    Args:
        compute_loss: The loss of the step with this number.
        optimizers: Step together; what they hold is what is trained.
        steps: The total number of steps, which decides the decay.
        label: Shown by the progress bar.
        first_step: Where to begin: the number of steps that a resumed run has behind it.
        warmup: Share of the steps in which the rate rises first.
        after_backward: Called between the backward pass and the optimizers' step.
        after_step: Called with the number of steps done and the loss; True stops training.
        progress: Whether to show the bar (only ever on a terminal).

    Returns:
        The loss of each step that was run.
    """
    starts = [[float(group["lr"]) for group in optimizer.param_groups] for optimizer in optimizers]
    losses: list[float] = []
    disable = None if progress else True
    with tqdm(total=steps, initial=first_step, desc=label, unit="step", disable=disable, leave=False) as bar:
        for step in range(first_step, steps):
            loss = compute_loss(step)
            for optimizer, rates in zip(optimizers, starts, strict=True):
                for group, start in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = learning_rate(start, step, steps, warmup)
                optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            after_backward()
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.item())
            bar.update()
            bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
            if after_step(step + 1, losses[-1]):
                break
    return losses


def shuffled_batches(
    count: int, batch: int, random: np.random.Generator, *, keep_last: bool
) -> Iterator[Rows]:
    """Batches of row numbers without end, in a new random order for each pass.

    Args:
        count: How many rows there are.
        batch: Rows per batch.
        random: Draws the order at the first batch of each pass.
        keep_last: Whether the last, smaller batch of a pass is used or dropped.
    """
    number = -(-count // batch) if keep_last else max(1, count // batch)
    while True:
        order = random.permutation(count)
        for place in range(number):
            yield order[place * batch : (place + 1) * batch]
