"""Encoders that end in trained towers: `adapted` on a frozen transformer, `static` on token bags alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from metaxc.arrays import Floats
from metaxc.artifacts import json_digest, load_arrays, load_json, save_arrays, save_json
from metaxc.encoders.adapter import embed_with
from metaxc.encoders.pretrained import Pretrained
from metaxc.encoders.tokens import BagTokenizer, TokenBags
from metaxc.encoders.towers import Tower, TwoTowers
from metaxc.errors import ModelError


class Adapted:
    """A pretrained encoder, adapted to the clicks on each side by a token-bag tower.

    Args:
        base: The frozen encoder.
        towers: Trained by `metaxc.encoders.adapter.train_towers`.
        tokenizer: The base's tokenizer, by default.
    """

    kind: ClassVar[str] = "adapted"

    def __init__(self, base: Pretrained | None, towers: TwoTowers, tokenizer: BagTokenizer):
        self.base = base
        self.towers = towers.eval()
        self.tokenizer = tokenizer

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base={self.base!r}, dim={self.dim})"

    @property
    def dim(self) -> int:
        return int(self.towers.item.table.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        weights = {
            name: json_digest(array.tobytes().hex()) for name, array in _arrays_of(self.towers).items()
        }
        base = None if self.base is None else self.base.fingerprint
        return json_digest([self.kind, base, weights, json_digest(self.tokenizer.definition)])

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        bags = self.tokenizer(texts)
        base = None if self.base is None else self._base_of(texts, bags, self.base.encode_queries)
        return embed_with(self.towers.query, base, bags)

    def encode_items(self, texts: Sequence[str]) -> Floats:
        bags = self.tokenizer(texts)
        base = None if self.base is None else self._base_of(texts, bags, self.base.encode_items)
        return embed_with(self.towers.item, base, bags)

    def _base_of(
        self, texts: Sequence[str], bags: TokenBags, encode: Callable[[Sequence[str]], Floats]
    ) -> Floats:
        """The frozen embeddings, from the tokens there already are where that will do."""
        assert self.base is not None
        if self.base.caches(len(texts)) or not self.base.takes(self.tokenizer):
            return encode(texts)
        return self.base.encode_bags(bags)

    def save(self, folder: Path) -> None:
        save_arrays(folder / "towers.safetensors", _arrays_of(self.towers))
        (folder / "tokenizer.json").write_text(self.tokenizer.definition, encoding="utf-8")
        base = None
        if self.base is not None:
            base = self.base.reference()
        save_json(
            folder / "encoder.json",
            {
                "kind": self.kind,
                "base": base,
                "dim": self.dim,
                "vocabulary": self.tokenizer.vocabulary,
                "losses": [round(loss, 4) for loss in self.towers.losses],
            },
        )

    @classmethod
    def load(cls, folder: Path, base: Pretrained | None) -> Adapted:
        facts = load_json(folder / "encoder.json")
        towers = TwoTowers(int(facts["vocabulary"]), int(facts["dim"]), base=base is not None)
        _fill(towers, load_arrays(folder / "towers.safetensors"))
        towers.losses = [float(loss) for loss in facts.get("losses", [])]
        return cls(base, towers, BagTokenizer(folder / "tokenizer.json"))


class Static(Adapted):
    """Token bags alone: no transformer at serving, tens of thousands of texts a second."""

    kind: ClassVar[str] = "static"


def _arrays_of(towers: TwoTowers) -> dict[str, NDArray[np.generic]]:
    """The weights, the token tables without the rows that never left zero."""
    arrays: dict[str, NDArray[np.generic]] = {}
    for name, tensor in towers.state_dict().items():
        array = tensor.numpy()
        if name.endswith(".table"):
            rows = np.flatnonzero(array.any(axis=1)).astype(np.int32)
            arrays[f"{name}.rows"], arrays[f"{name}.values"] = rows, array[rows]
        else:
            arrays[name] = array
    return arrays


def _fill(towers: TwoTowers, arrays: dict[str, NDArray[np.generic]]) -> None:
    state = towers.state_dict()
    try:
        for name, tensor in state.items():
            if name.endswith(".table"):
                tensor.zero_()
                tensor[torch.from_numpy(arrays[f"{name}.rows"].astype(np.int64))] = torch.from_numpy(
                    arrays[f"{name}.values"]
                )
            else:
                tensor.copy_(torch.from_numpy(np.array(arrays[name])))
    except (KeyError, RuntimeError, IndexError) as error:
        raise ModelError("The towers do not fit their configuration", got=str(error)) from error


def static_towers(pretrained: Pretrained, vocabulary: int, scale: float = 12.0) -> TwoTowers:
    """Static towers that start at the transformer's own word embeddings, where it has them, unit length;
    else at small random vectors."""
    towers = TwoTowers(vocabulary, pretrained.dim, base=False, scale=scale)
    table = pretrained.token_table()
    if table is None or len(table) < vocabulary:
        start = torch.randn(vocabulary, pretrained.dim) / pretrained.dim**0.5
    else:
        start = torch.from_numpy(table[:vocabulary])
        start = start - start.mean(dim=0)
        start = start / start.norm(dim=1, keepdim=True).clamp(min=1e-6)
    for tower in (towers.query, towers.item):
        _set_table(tower, start)
    return towers


def _set_table(tower: Tower, values: torch.Tensor) -> None:
    with torch.no_grad():
        tower.table.copy_(values)
