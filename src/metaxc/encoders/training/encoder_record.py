"""What encoder training writes to disk: checkpoints of a run, and the record in the trained encoder's folder.

Everything random in a run is a function of its seed and the step, so the checkpoint of a killed run is enough to end
with the same weights to the last bit on the same machine.

The record, `metaxc.json`, names the items and queries that were held out of training. An encoder knows the items
whose clicks it was trained on, so only the held-out ones can serve as pseudo-novel items later (`known_folds`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from scipy.sparse import csr_array
from torch import Tensor, nn

from metaxc.arrays import Rows
from metaxc.artifacts import (
    Arrays,
    atomic_folder,
    load_arrays,
    load_json,
    save_arrays,
    save_json,
    verify_folder,
)
from metaxc.data import Dataset
from metaxc.data.folds import Fold
from metaxc.errors import MetaxcError, ModelError

CHECKPOINT_KIND = "training checkpoint"
ENCODER_KIND = "trained encoder"
RECORD_FILE = "metaxc.json"


class Checkpoint:
    """The latest state of one training run: weights, optimizers, batches, negatives and progress, without pickle.

    Args:
        folder: The checkpoint's folder, replaced atomically each time.
        key: Identifies everything that decides the run; the checkpoint of another run is ignored.
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
        """Replace the checkpoint.

        Args:
            module: Everything that is learnt.
            optimizers: Saved with their moments.
            parts: The states of the batches and the negatives.
            best: The weights of the best validation score so far; empty without validation.
            progress: JSON: step, losses, validation scores.
        """
        with atomic_folder(self.folder, CHECKPOINT_KIND, overwrite=True) as new:
            save_arrays(new / "weights.safetensors", copy_weights(module))
            save_arrays(new / "optimizers.safetensors", _optimizer_arrays(optimizers))
            flat = {
                f"{part}/{name}": array for part, arrays in parts.items() for name, array in arrays.items()
            }
            save_arrays(new / "parts.safetensors", flat)
            save_arrays(new / "best.safetensors", best)
            save_json(new / "progress.json", {"key": self.key, **progress})

    def read(
        self, module: nn.Module, optimizers: list[torch.optim.Optimizer]
    ) -> tuple[dict[str, Any], dict[str, Arrays], Arrays] | None:
        """Load module and optimizers, and return progress, parts and best weights; None where there is no intact
        checkpoint of this run."""
        try:
            verify_folder(self.folder, CHECKPOINT_KIND)
            progress: dict[str, Any] = load_json(self.folder / "progress.json")
        except MetaxcError:
            return None
        if progress.pop("key") != self.key:
            return None
        load_weights(module, load_arrays(self.folder / "weights.safetensors", finite=False))
        _load_optimizers(optimizers, load_arrays(self.folder / "optimizers.safetensors", finite=False))
        parts: dict[str, Arrays] = {}
        for name, array in load_arrays(self.folder / "parts.safetensors", finite=False).items():
            part, _, rest = name.partition("/")
            parts.setdefault(part, {})[rest] = array
        return progress, parts, load_arrays(self.folder / "best.safetensors", finite=False)


def copy_weights(module: nn.Module) -> Arrays:
    """Copies of all weights, by name."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in module.state_dict().items()}


def load_weights(module: nn.Module, weights: Arrays) -> None:
    """Set a module's weights to the result of `copy_weights`."""
    module.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})


def _optimizer_arrays(optimizers: list[torch.optim.Optimizer]) -> Arrays:
    """The state of all optimizers, by optimizer, parameter and name."""
    arrays: Arrays = {}
    for number, optimizer in enumerate(optimizers):
        for parameter, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
                arrays[f"{number}/{parameter}/{name}"] = array
    return arrays


def _load_optimizers(optimizers: list[torch.optim.Optimizer], arrays: Arrays) -> None:
    for number, optimizer in enumerate(optimizers):
        # SparseAdam counts its steps in an int, the other optimizers in a tensor.
        counts_in_int = isinstance(optimizer, torch.optim.SparseAdam)
        state: dict[int, dict[str, Any]] = {}
        for key, array in arrays.items():
            owner, parameter, name = key.split("/")
            if int(owner) == number:
                is_count = counts_in_int and name == "step"
                value = int(array) if is_count else torch.from_numpy(np.array(array))
                state.setdefault(int(parameter), {})[name] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


class EncoderRecord(BaseModel):
    """How an encoder was trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: dict[str, Any] = Field(description="the settings, `metaxc.encoders.training.EncoderTraining`")
    base: str = Field(description="SHA-256 of the weights that training started from")
    data: str = Field(description="fingerprint of the data set")
    learnt_from_clicks: bool = Field(description="whether the encoder knows the items it was trained on")
    held_items: list[str] = Field(description="ids of the observed items that were held out of training")
    held_queries: list[str] = Field(description="ids of the training queries that were held out")
    steps: int = Field(
        0, ge=0, description="steps after which the learning rate was to reach 0; 0 in older files"
    )
    losses: list[float] = Field(description="the loss, averaged over spans of steps")
    validation: list[tuple[int, float]] = Field(
        description="step and mean of zero-shot P@1 and R@10 on held-out items, percent; R@10 alone in older files",
        validation_alias=AliasChoices("validation", "judged"),  # older files have the second
    )

    @property
    def best_step(self) -> int:
        """The step of the weights that were kept: that of the best validation score, 0 for the start; without
        validation the last one."""
        if not self.validation:
            return self.steps
        return max(self.validation, key=lambda one: one[1])[0]

    def write(self, folder: Path) -> None:
        """Write the record into the encoder's folder."""
        save_json(folder / RECORD_FILE, self.model_dump())

    @staticmethod
    def load(folder: Path) -> EncoderRecord | None:
        """Read the record in a folder; None where metaxc did not train the encoder."""
        if not (folder / RECORD_FILE).is_file():
            return None
        try:
            return EncoderRecord.model_validate(load_json(folder / RECORD_FILE))
        except ValidationError as error:
            raise ModelError(
                "The record of a trained encoder cannot be read",
                got=f"{folder / RECORD_FILE}: {error.errors()[0]['msg']}",
                fix="train the encoder again",
            ) from error


def known_folds(
    record: EncoderRecord, dataset: Dataset, training: tuple[Rows, Rows, csr_array], count: int, seed: int = 0
) -> list[Fold]:
    """Folds whose pseudo-novel items the encoder was not trained on: `count` folds that share no item; one where there
    are too few items for that; none where there are too few even for one.

    Args:
        record: The record of an encoder that learnt from clicks.
        dataset: A data set with its novel items marked.
        training: Rows of the observed items and of the training queries, and their clicks, as
            `metaxc.data.clicks.training_clicks` returns them.
        count: The number of folds.
        seed: Decides the order of the items.
    """
    observed, query_rows, clicks = training
    items, queries = set(record.held_items), set(record.held_queries)
    held = np.asarray([dataset.train.queries.ids[row] in queries for row in query_rows], dtype=bool)
    unknown = np.flatnonzero([dataset.items.ids[row] in items for row in observed])
    order = np.random.default_rng(seed).permutation(unknown)
    for parts in (count, 1):
        folds = []
        for part in np.array_split(order, parts):
            pseudo_novel = np.zeros(len(observed), dtype=bool)
            pseudo_novel[part] = True
            folds.append(Fold(pseudo_novel, held))
        if all(fold.is_enough(clicks) for fold in folds):
            return folds
    return []
