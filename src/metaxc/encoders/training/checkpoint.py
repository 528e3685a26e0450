"""A training run on disk: weights, optimizers, what the parts remember, and how far it is. No pickle.

Everything random in a run is a function of its seed and the step, so these are enough to go on exactly where a killed
run was: the weights at the end are the same to the last bit on the same machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metaxc.artifacts import (
    Arrays,
    atomic_folder,
    load_arrays,
    load_json,
    save_arrays,
    save_json,
    verify_folder,
    write_manifest,
)
from metaxc.errors import MetaxcError

KIND = "training checkpoint"


class Checkpoint:
    """The newest state of one run.

    Args:
        folder: Where it stands; replaced whole each time.
        key: Names all that decides the run; a checkpoint of another run is not taken up.
    """

    def __init__(self, folder: Path, key: str):
        self.folder, self.key = folder, key

    def write(
        self,
        module: nn.Module,
        optimizers: list[torch.optim.Optimizer],
        parts: dict[str, Arrays],
        best: Arrays,
        progress: dict[str, Any],
    ) -> None:
        """Replace what stood there.

        Args:
            module: All that is learnt.
            optimizers: With their moments.
            parts: What batches and negatives remember.
            best: The best weights so far by early stopping, empty where nobody judges.
            progress: JSON: step, losses, judgements.
        """
        with atomic_folder(self.folder) as new:
            save_arrays(new / "weights.safetensors", weights_of(module))
            save_arrays(new / "optimizers.safetensors", _moments(optimizers))
            flat = {
                f"{part}/{name}": array for part, arrays in parts.items() for name, array in arrays.items()
            }
            save_arrays(new / "parts.safetensors", flat)
            save_arrays(new / "best.safetensors", best)
            save_json(new / "progress.json", {"key": self.key, **progress})
            write_manifest(new, KIND)

    def read(
        self, module: nn.Module, optimizers: list[torch.optim.Optimizer]
    ) -> tuple[dict[str, Any], dict[str, Arrays], Arrays] | None:
        """Fill module and optimizers and return progress, parts and best weights; None where there is no whole
        checkpoint of this run."""
        try:
            verify_folder(self.folder, KIND)
            progress: dict[str, Any] = load_json(self.folder / "progress.json")
        except MetaxcError:
            return None
        if progress.pop("key") != self.key:
            return None
        fill_weights(module, load_arrays(self.folder / "weights.safetensors"))
        _fill_moments(optimizers, load_arrays(self.folder / "optimizers.safetensors"))
        parts: dict[str, Arrays] = {}
        for name, array in load_arrays(self.folder / "parts.safetensors").items():
            part, _, rest = name.partition("/")
            parts.setdefault(part, {})[rest] = array
        return progress, parts, load_arrays(self.folder / "best.safetensors")


def weights_of(module: nn.Module) -> dict[str, NDArray[Any]]:
    """Copies of all weights, by name."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in module.state_dict().items()}


def fill_weights(module: nn.Module, weights: Arrays) -> None:
    """Put weights of `weights_of` back."""
    module.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})


def _moments(optimizers: list[torch.optim.Optimizer]) -> dict[str, NDArray[Any]]:
    """Every optimizer's state, by optimizer, parameter and name."""
    arrays: dict[str, NDArray[Any]] = {}
    for number, optimizer in enumerate(optimizers):
        for parameter, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
                arrays[f"{number}/{parameter}/{name}"] = array
    return arrays


def _fill_moments(optimizers: list[torch.optim.Optimizer], arrays: Arrays) -> None:
    for number, optimizer in enumerate(optimizers):
        whole = optimizer.state_dict()
        # SparseAdam counts its steps in a plain int, the others in a tensor.
        plain = isinstance(optimizer, torch.optim.SparseAdam)
        state: dict[int, dict[str, Any]] = {}
        for key, array in arrays.items():
            owner, parameter, name = key.split("/")
            if int(owner) == number:
                value = int(array) if plain and name == "step" else torch.from_numpy(np.array(array))
                state.setdefault(int(parameter), {})[name] = value
        optimizer.load_state_dict({**whole, "state": state})
