"""A transformer as the trainer trains it: texts in chunks of similar length, and bfloat16 where that is fast."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from metaxc.arrays import Rows
from metaxc.encoders.tokens import BagTokenizer, batches_by_length, pad_batch
from metaxc.encoders.training.trainer import Side
from metaxc.errors import ModelError

WEIGHT_DECAY = 0.01

CPU_TOKENS, GPU_TOKENS = 1_024, 32_768
"""Tokens of one pass: on a CPU what its caches hold, because larger passes are slower; a GPU needs many at once."""


class TransformerDualEncoder(nn.Module):
    """A sentence-transformers model that is fine-tuned, the same for queries and items (Siamese).

    Args:
        model: A `SentenceTransformer` whose first module is a transformer.
        tokenizer: The model's own tokenizer, with special tokens, which cuts texts to the length to train with.
        queries: The texts of the queries.
        items: The texts of the items.
        scale: Multiplies the cosine similarities to give logits; the start value.
        chunk_tokens: Tokens of one pass with gradients; the device's default when None.
        low_precision: Whether matrix products are computed in bfloat16; weights stay float32.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: BagTokenizer,
        queries: Sequence[str],
        items: Sequence[str],
        *,
        scale: float = 20.0,
        chunk_tokens: int | None = None,
        low_precision: bool = False,
    ):
        super().__init__()
        if type(model[0]).__name__ != "Transformer":
            raise ModelError(
                "Only transformers can be trained",
                got=type(model[0]).__name__,
                expected="a sentence-transformers folder whose first module is a Transformer",
            )
        self.model = model
        self._log_scale = nn.Parameter(torch.tensor(float(scale)).log())
        self.chunk_tokens, self.low_precision = chunk_tokens, low_precision
        self.bags = {"query": tokenizer(queries), "item": tokenizer(items)}
        self.padding = int(getattr(model.tokenizer, "pad_token_id", 0) or 0)

    @property
    def module(self) -> nn.Module:
        return self

    @property
    def log_scale(self) -> nn.Parameter:
        return self._log_scale

    def optimizers(self, learning_rate: float) -> list[torch.optim.Optimizer]:
        weights = list(self.model.parameters())
        matrices = [p for p in weights if p.ndim > 1]
        vectors = [p for p in weights if p.ndim <= 1]
        return [
            torch.optim.AdamW(matrices, lr=learning_rate, weight_decay=WEIGHT_DECAY),
            torch.optim.Adam(vectors, lr=learning_rate),
            torch.optim.Adam([self._log_scale], lr=learning_rate),
        ]

    def chunks(self, side: Side, rows: Rows) -> list[Rows]:
        default = CPU_TOKENS if self._log_scale.device.type == "cpu" else GPU_TOKENS
        return list(batches_by_length(self._lengths(side, rows), self.chunk_tokens or default))

    def cost(self, side: Side, rows: Rows) -> int:
        return int(self._lengths(side, rows).sum())

    def embed(self, side: Side, rows: Rows) -> Tensor:
        device = self._log_scale.device
        ids, mask = pad_batch(self.bags[side], rows)
        ids[mask == 0] = self.padding
        features = {
            "input_ids": torch.from_numpy(ids).to(device),
            "attention_mask": torch.from_numpy(mask).to(device),
        }
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.low_precision):
            found = self.model(features)["sentence_embedding"]
        unit: Tensor = functional.normalize(found.float(), dim=1)
        return unit

    def _lengths(self, side: Side, rows: Rows) -> Rows:
        starts = self.bags[side].starts
        return starts[rows + 1] - starts[rows]


BFLOAT16_TRIAL = """
import torch
a = torch.rand(64, 64, requires_grad=True)
with torch.autocast("cpu", dtype=torch.bfloat16):
    (a @ a).sum().backward()
"""


@cache
def has_bfloat16(device: str = "cpu") -> bool:
    """Whether a type of device multiplies bfloat16 faster than float32: most GPUs, and CPUs with AVX-512 BF16 or AMX.

    Some virtual machines announce these instructions and then end the process that uses them, so a CPU is tried out in
    a process of its own.
    """
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    done = subprocess.run(
        [sys.executable, "-c", BFLOAT16_TRIAL], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return done.returncode == 0
