"""One process, or several started by `torchrun`: who embeds what, and how the gradients come together.

The chunks of a batch are dealt out; the embeddings are gathered, so that every process sees the whole batch and
computes the same loss; each carries the gradient back through its own chunks; the parts are added up.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor, distributed, nn

from metaxc.arrays import Rows


class Processes:
    """The processes of this run; set up from torchrun's environment where there is one."""

    def __init__(self) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not distributed.is_initialized():
            distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        self.many = (
            distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
        )
        self.rank = distributed.get_rank() if self.many else 0
        self.count = distributed.get_world_size() if self.many else 1

    @property
    def first(self) -> bool:
        """Whether this is the one that writes files and shows progress."""
        return self.rank == 0

    def mine(self, chunks: int) -> range:
        """The chunks that this process embeds."""
        return range(self.rank, chunks, self.count)

    def gather(self, parts: Sequence[Tensor], places: Sequence[Rows], rows: int, like: Tensor) -> Tensor:
        """(rows, dim): every process's chunks, each at its places."""
        dim = torch.tensor(parts[0].shape[1] if parts else 0, device=like.device)
        if self.many:
            distributed.all_reduce(dim, distributed.ReduceOp.MAX)
        values = torch.zeros(rows, int(dim), device=like.device)
        for part, place in zip(parts, places, strict=True):
            values[torch.from_numpy(place).to(like.device)] = part
        if self.many:
            distributed.all_reduce(values)
        return values

    def share_gradients(self, module: nn.Module, whole: nn.Parameter) -> None:
        """Add the processes' gradients up; that of `whole` is the same in each already."""
        if not self.many:
            return
        for parameter in module.parameters():
            if parameter is whole:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            distributed.all_reduce(parameter.grad)
