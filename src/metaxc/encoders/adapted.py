"""Encoders with trained token-bag towers: `adapted` on top of a frozen transformer, `static` without one.

Queries and items each have a tower of their own:

    tower(x, tokens) = normalize(x + mean(token vectors) + MLP(x))

with x the frozen embedding of the text; the tokens are its word pieces and frequent bigrams of them. The token table
and the MLP's last layer start at zero, so an untrained tower is the frozen encoder. The reason (docs/decisions.md): the
same word means different things in queries and in items, and a token table learns what a word means *for these clicks*
at a hundredth of the cost of fine-tuning the transformer. Without x (`base=False`) the tower is the static encoder,
which has no bigrams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from metaxc.array_checks import AGAIN, check_rows, take_array
from metaxc.arrays import Floats, Rows
from metaxc.artifacts import Arrays, array_digest, json_digest, load_arrays, load_json, save_arrays, save_json
from metaxc.data.text_lists import list_texts
from metaxc.encoders.base_names import Prompts
from metaxc.encoders.encoder import EmbeddingCache, Encoder
from metaxc.encoders.pretrained import BASE_FOLDER, Pretrained
from metaxc.encoders.tokens import BagTokenizer, TokenBags
from metaxc.encoders.vectors import Vectors
from metaxc.errors import ModelError

EMBED_BLOCK = 4_096

BIGRAMS = "bigrams"
"""The name of the bigrams among the arrays of the towers."""


class Tower(nn.Module):
    """The tower of one side, queries or items.

    Args:
        vocabulary: The number of token ids.
        dim: The size of an embedding.
        base: Whether the tower adds to a frozen embedding.
    """

    def __init__(self, vocabulary: int, dim: int, base: bool = True):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(vocabulary, dim))
        if base:
            self.hidden = nn.Linear(dim, dim)
            self.out = nn.Linear(dim, dim)
            nn.init.zeros_(self.out.weight)
            nn.init.zeros_(self.out.bias)

    def forward(
        self, x: Tensor | None, tokens: Tensor, offsets: Tensor, kept: Tensor | None = None
    ) -> Tensor:
        """(n, dim) unit embeddings; the arguments are those of `add_up`."""
        return functional.normalize(self.add_up(x, tokens, offsets, kept), dim=1)

    def add_up(self, x: Tensor | None, tokens: Tensor, offsets: Tensor, kept: Tensor | None = None) -> Tensor:
        """(n, dim) the sum of frozen embedding, token vectors and MLP, of any length.

        Args:
            x: (n, dim) frozen embeddings, None for a static tower.
            tokens: (sum of lengths,) token ids.
            offsets: (n,) where each text's tokens begin.
            kept: (sum of lengths,) 0/1, for token dropout; the mean is over all tokens of the text either way.
        """
        lengths = torch.diff(offsets, append=offsets.new_tensor([len(tokens)]))
        weights = (
            torch.repeat_interleave(1.0 / lengths.clamp(min=1), lengths, output_size=len(tokens))
            if len(tokens)
            else None
        )
        if weights is not None and kept is not None:
            weights = weights * kept
        if weights is None:
            bag = self.table.new_zeros(len(offsets), self.table.shape[1])
        else:
            bag = functional.embedding_bag(
                tokens, self.table, offsets, mode="sum", per_sample_weights=weights, sparse=self.training
            )
        return bag if x is None else x + bag + self.out(functional.gelu(self.hidden(x)))

    def embed(self, base: Floats | None, bags: TokenBags) -> Floats:
        """(texts, dim) unit float32 embeddings of all texts, computed in blocks without gradients."""
        out = np.empty((len(bags), self.table.shape[1]), dtype=np.float32)
        with torch.inference_mode():
            for start in range(0, len(bags), EMBED_BLOCK):
                rows = np.arange(start, min(start + EMBED_BLOCK, len(bags)))
                x = None if base is None else torch.from_numpy(np.array(base[rows]))
                out[rows] = self(x, *bags.batch(rows)).numpy()
        return out


class TwoTowers(nn.Module):
    """The query tower, the item tower, and the learnt scale that multiplies cosine similarities to give logits.

    `losses` is the learning curve, one value per step of training; empty when untrained.
    """

    def __init__(self, vocabulary: int, dim: int, base: bool = True, scale: float = 12.0):
        super().__init__()
        self.losses: list[float] = []
        self.query = Tower(vocabulary, dim, base)
        self.item = Tower(vocabulary, dim, base)
        self.log_scale = nn.Parameter(torch.tensor(scale).log())

    def scaled(self, extent: float) -> TwoTowers:
        """A copy in which what training added to the frozen embedding is multiplied by `extent`: 0 is the frozen
        encoder, 1 the trained one; between the two, what was learnt too well of the past is damped."""
        copy = deepcopy(self)
        with torch.no_grad():
            for tower in (copy.query, copy.item):
                for weights in (tower.table, tower.out.weight, tower.out.bias):
                    weights.mul_(extent)
        return copy

    def to_arrays(self) -> Arrays:
        """The weights; the token tables without the rows that are still zero."""
        arrays: Arrays = {}
        for name, tensor in self.state_dict().items():
            array = tensor.numpy()
            if name.endswith(".table"):
                rows = np.flatnonzero(array.any(axis=1)).astype(np.int32)
                arrays[f"{name}.rows"], arrays[f"{name}.values"] = rows, array[rows]
            else:
                arrays[name] = array
        return arrays

    def load_arrays(self, arrays: Arrays) -> None:
        """Set the weights to the result of `to_arrays`."""
        try:
            for name, tensor in self.state_dict().items():
                if name.endswith(".table"):
                    tensor.zero_()
                    rows = arrays[f"{name}.rows"].astype(np.int64)
                    check_rows(rows, len(tensor), "towers")
                    tensor[torch.from_numpy(rows)] = torch.from_numpy(arrays[f"{name}.values"])
                else:
                    tensor.copy_(torch.from_numpy(np.array(arrays[name])))
        except (KeyError, RuntimeError, IndexError, TypeError, ValueError) as error:
            raise ModelError(
                "The towers do not match their configuration",
                got=str(error),
                fix=AGAIN,
            ) from error


def build_static_towers(pretrained: Pretrained, vocabulary: int, scale: float = 12.0) -> TwoTowers:
    """Static towers that start from the transformer's own word embeddings (centred, unit length), or from small random
    vectors where the transformer's cannot be read."""
    towers = TwoTowers(vocabulary, pretrained.dim, base=False, scale=scale)
    table = pretrained.token_table()
    if table is None or len(table) < vocabulary:
        start = torch.randn(vocabulary, pretrained.dim) / pretrained.dim**0.5
    else:
        start = torch.from_numpy(table[:vocabulary])
        start = start - start.mean(dim=0)
        start = start / start.norm(dim=1, keepdim=True).clamp(min=1e-6)
    with torch.no_grad():
        for tower in (towers.query, towers.item):
            tower.table.copy_(start)
    return towers


class Adapted:
    """A pretrained encoder that is adapted to the clicks by a token-bag tower for queries and one for items.

    Args:
        base: The frozen encoder.
        towers: Trained by `metaxc.encoders.learning.train_towers`.
        tokenizer: Usually the base's own tokenizer.
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

    @property
    def max_tokens(self) -> int:
        """How many tokens of a text it reads."""
        return self.tokenizer.max_tokens if self.base is None else self.base.max_tokens

    @cached_property
    def fingerprint(self) -> str:
        return self._digest(self._weight_digests)

    @cached_property
    def item_fingerprint(self) -> str:
        """Identifies the item side: the same fingerprint means the same item embeddings, whatever queries become."""
        weights = {name: one for name, one in self._weight_digests.items() if name.startswith("item.")}
        return self._digest(weights)

    @cached_property
    def _weight_digests(self) -> dict[str, str]:
        arrays = self.towers.to_arrays()
        return {name: array_digest(array) for name, array in arrays.items()}

    def _digest(self, weights: dict[str, str]) -> str:
        base = None if self.base is None else self.base.fingerprint
        parts = [self.kind, base, weights, json_digest(self.tokenizer.definition)]
        bigrams = self.tokenizer.bigrams  # encoders of before there were any keep their fingerprint
        return json_digest([*parts, array_digest(bigrams)] if len(bigrams) else parts)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        encode = None if self.base is None else self.base.encode_queries
        return self._encode(self.towers.query, texts, encode)

    def encode_items(self, texts: Sequence[str]) -> Floats:
        encode = None if self.base is None else self.base.encode_items
        return self._encode(self.towers.item, texts, encode)

    def _encode(
        self, tower: Tower, texts: Sequence[str], encode: Callable[[Sequence[str]], Floats] | None
    ) -> Floats:
        """(texts, dim) embeddings; texts are tokenized once for both the tower and the base where that is possible."""
        texts = list_texts(texts)
        pieces = self.tokenizer.read_pieces(texts)
        bags = self.tokenizer.add_bigrams(pieces)
        if self.base is None or encode is None:
            return tower.embed(None, bags)
        if self.base.uses_cache(len(texts)) or not self.base.accepts_bags_of(self.tokenizer):
            return tower.embed(encode(texts), bags)
        return tower.embed(self.base.encode_bags(pieces), bags)

    def save(self, folder: Path) -> None:
        if self.base is not None:
            self.base.copy_trained_weights(folder)
        arrays = self.towers.to_arrays()
        if len(self.tokenizer.bigrams):
            arrays[BIGRAMS] = self.tokenizer.bigrams
        save_arrays(folder / "towers.safetensors", arrays)
        (folder / "tokenizer.json").write_text(self.tokenizer.definition, encoding="utf-8")
        save_json(
            folder / "encoder.json",
            {
                "kind": self.kind,
                "base": None if self.base is None else self.base.reference(),
                "dim": self.dim,
                "vocabulary": self.tokenizer.vocabulary,
                "losses": [round(loss, 4) for loss in self.towers.losses],
            },
        )

    @classmethod
    def load(cls, folder: Path, base: Pretrained | None) -> Adapted:
        facts, arrays = load_json(folder / "encoder.json"), load_arrays(folder / "towers.safetensors")
        tokenizer = BagTokenizer(folder / "tokenizer.json")
        if BIGRAMS in arrays:
            tokenizer = tokenizer.with_bigrams(_read_bigrams(arrays, folder, tokenizer.pieces))
        table = take_array(arrays, "item.table.values", folder / "towers.safetensors", (None, None))
        sizes = (tokenizer.vocabulary, table.shape[1] if base is None else base.dim)
        if (facts["vocabulary"], facts["dim"]) != sizes or table.shape[1] != sizes[1]:
            raise ModelError(
                "The towers do not match their tokenizer or their base",
                got=f"a vocabulary of {facts['vocabulary']!r} and {facts['dim']!r} dimensions",
                expected=f"a vocabulary of {sizes[0]:,} and {sizes[1]:,} dimensions",
                fix=AGAIN,
            )
        towers = TwoTowers(*sizes, base=base is not None)
        towers.load_arrays(arrays)
        towers.losses = [float(loss) for loss in facts.get("losses", [])]
        return cls(base, towers, tokenizer)


def _read_bigrams(arrays: Arrays, folder: Path, pieces: int) -> Rows:
    """(n,) int64 the bigrams of a tokenizer with so many word pieces."""
    bigrams = take_array(arrays, BIGRAMS, folder / "towers.safetensors", (None,), ("int64",))
    check_rows(bigrams, pieces * pieces, BIGRAMS)
    if (np.diff(bigrams) <= 0).any():
        raise ModelError("The bigrams are not in ascending order", got=folder.name, fix=AGAIN)
    return bigrams


class Static(Adapted):
    """Token bags alone: no transformer at serving time, tens of thousands of texts a second."""

    kind: ClassVar[str] = "static"


def load_encoder(
    folder: Path, *, base: str | Path | None = None, cache: EmbeddingCache | None = None
) -> Encoder:
    """Load the encoder that `Encoder.save` wrote into `folder`.

    Args:
        folder: A folder whose checksums the caller has verified.
        base: Where the pretrained weights are, if they are not in `folder` and have moved since training.
        cache: Holds the embeddings of the pretrained base.
    """
    facts = load_json(folder / "encoder.json")
    kind = facts.get("kind")
    if (folder / BASE_FOLDER).is_dir():
        base = folder / BASE_FOLDER
    if kind == Vectors.kind:
        return Vectors.load(folder)
    if kind == Static.kind:
        return Static.load(folder, None)
    if kind == Pretrained.kind:
        return _load_base(facts, base, cache)
    if kind == Adapted.kind:
        return Adapted.load(folder, _load_base(facts["base"], base, cache))
    raise ModelError("Unknown kind of encoder", got=kind, expected="adapted, pretrained, static or vectors")


def _load_base(facts: dict[str, Any], base: str | Path | None, cache: EmbeddingCache | None) -> Pretrained:
    prompts = Prompts.model_validate(facts.get("prompts") or {})
    encoder = Pretrained(base or facts["source"], cache, facts.get("backend", "torch"), prompts=prompts)
    if encoder.fingerprint != facts["fingerprint"]:
        raise ModelError(
            "The encoder is not the one the model was trained with",
            got=f"{encoder.source} with fingerprint {encoder.fingerprint[:16]}",
            expected=f"{facts['source']} with fingerprint {facts['fingerprint'][:16]}",
            fix="give the folder of the original weights as the base encoder, or train again",
        )
    return encoder


def frozen_base(
    encoder: Encoder, source: str | Path, cache: EmbeddingCache | None, texts: Sequence[str]
) -> Encoder:
    """The encoder before it learnt from clicks: the pretrained weights, with the backend that the model was trained
    with unless they were fine-tuned, or the user's own vectors.

    Args:
        encoder: The encoder of a model.
        source: The pretrained weights to use for a static encoder, which has no base, and for a fine-tuned one.
        cache: Holds the embeddings of the pretrained weights.
        texts: The texts that will be encoded; used to choose a backend where the encoder has none.
    """
    base = encoder.base if isinstance(encoder, Adapted) else encoder
    if isinstance(base, Vectors) or (isinstance(base, Pretrained) and not base.is_trained_here):
        return base
    return Pretrained(source, cache, "auto", texts=texts)
