"""The device that encodes and trains: a GPU where there is one, otherwise the processor.

Everything that computes with torch asks `current_device`, so that the choice is made in one place. What is trained
comes back to the processor: models are saved, loaded and searched there.

There was no GPU where this was developed. Tests check that no tensor is left behind on another device (with torch's
device "meta", which has no values), not that the results are right on a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaxc.errors import ConfigError

DEVICES = ("auto", "cpu", "cuda")
"""What may be asked for; auto is cuda where torch can use a GPU."""

_current: ContextVar[torch.device | None] = ContextVar("metaxc device", default=None)


def choose_device(name: str = "auto") -> torch.device:
    """The device of a name in `DEVICES`; of several GPUs, the one of this process under torchrun (`LOCAL_RANK`)."""
    if name not in DEVICES:
        raise ConfigError("Unknown device", got=repr(name), expected=", ".join(DEVICES))
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise ConfigError(
            "There is no GPU that torch can use",
            got="device cuda",
            expected="an NVIDIA GPU, its driver, and a build of torch for CUDA",
            fix="use the device auto or cpu, or install another build of torch",
        )
    if has_gpu and name != "cpu":
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")


def set_device(name: str) -> None:
    """Encode and train on a device from now on; a command does this for the rest of its process."""
    _current.set(choose_device(name))


@contextmanager
def use_device(device: str | torch.device) -> Iterator[torch.device]:
    """Encode and train on a device within this block.

    Example:
        >>> with use_device("cpu") as device:
        ...     print(device, current_device())
        cpu cpu
    """
    chosen = choose_device(device) if isinstance(device, str) else device
    token = _current.set(chosen)
    try:
        yield chosen
    finally:
        _current.reset(token)


def current_device() -> torch.device:
    """The device of the innermost `use_device`; outside of one, that of auto."""
    return _current.get() or choose_device()


def to_device(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """An array as a tensor on a device; on the processor it shares the array's memory."""
    return torch.from_numpy(array).to(device)


def to_array(tensor: Tensor) -> NDArray[np.float32]:
    """A tensor without its gradient as an array, from whichever device."""
    array: NDArray[np.float32] = tensor.detach().cpu().numpy()
    return array
