"""The gradient-descent loop of everything that is trained: linear decay, several optimizers, a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from torch import Tensor
from torch.optim import Optimizer
from tqdm import tqdm

from metaxc.arrays import Rows


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
