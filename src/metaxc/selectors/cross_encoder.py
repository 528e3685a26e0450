"""A trained re-ranker: a small cross-encoder that reads the texts of an item and of a candidate neighbour together.

Two texts may be similar although their items are clicked for different reasons. A neighbour is useful when its
classifier ranks the item's own queries high, and for observed items that is known. So the training set is pairs of
observed items, and the target is how high the candidate's classifier scores the item's queries, standardised within
the item's shortlist, because only the order within a shortlist matters to a re-ranker.

The transformer starts from the pretrained weights. Its embeddings and lower layers stay frozen, which halves the cost
and keeps what a few thousand pairs cannot teach.

sentence-transformers' `CrossEncoderTrainer` needs two more packages (datasets, accelerate) for one loss and one batch
order, and has one learning rate, where the new head needs ten times that of the layers. So the loop is the shared
`run_training`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Rows
from metaxc.artifacts import atomic_folder, verify_folder
from metaxc.data.clicks import clicks_per_item
from metaxc.encoders.encoder_folder import check_transformer_folder
from metaxc.errors import DataError, ModelError
from metaxc.training_loop import run_training, shuffled_batches

KIND = "cross-encoder"
MAX_TOKENS = 64
"""The limit for both texts together. Titles are shorter, and the cost of attention grows with the square."""

BATCH = 32
SCORE_BATCH = 256
LEARNING_RATE, HEAD_LEARNING_RATE = 1e-4, 1e-3
"""The head starts from random weights, the layers from pretrained ones."""


def neighbour_usefulness(queries: Floats, clicks: csr_array, classifiers: Floats, shortlists: Rows) -> Floats:
    """(items, S) float32: how useful each candidate is to each item.

    This is the mean score of the candidate's classifier over the queries that clicked the item, by the weights of the
    clicks, standardised to mean 0 and standard deviation 1 within the shortlist. It is 0 for padding, for items without
    clicks, and where all candidates are equally useful.

    Args:
        queries: (queries, dim) embeddings, as the classifiers score them.
        clicks: (queries, items).
        classifiers: (items, dim).
        shortlists: (items, S) rows of candidates without the item itself, −1 pads.
    """
    counts = np.maximum(clicks_per_item(clicks), 1)
    means = np.asarray(clicks.T @ np.asarray(queries, dtype=np.float32)) / counts[:, None]
    present = shortlists >= 0
    scores = np.einsum("nd,nsd->ns", means, classifiers[np.maximum(shortlists, 0)])
    size = np.maximum(present.sum(axis=1, keepdims=True), 1)
    scores = np.where(present, scores - np.where(present, scores, 0).sum(axis=1, keepdims=True) / size, 0)
    spread = np.sqrt((scores**2).sum(axis=1, keepdims=True) / size)
    return np.where(spread > 1e-6, scores / np.maximum(spread, 1e-6), 0).astype(np.float32)


class CrossEncoderReranker:
    """Scores candidates by reading both texts; the function that `RerankSelector` calls.

    Args:
        model: A transformers sequence classifier with one output.
        tokenizer: Its tokenizer.
    """

    def __init__(self, model: Any, tokenizer: Any):
        self.model, self.tokenizer = model.eval(), tokenizer

    def __repr__(self) -> str:
        return f"CrossEncoderReranker({self.fingerprint[:12]})"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the weights."""
        digest = sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().numpy().tobytes())
        return digest.hexdigest()

    def __call__(self, items: list[str], candidates: list[list[str]]) -> Floats:
        """(n, candidates) float32 scores, higher is more useful."""
        pairs = [(item, other) for item, others in zip(items, candidates, strict=True) for other in others]
        scores = np.empty(len(pairs), dtype=np.float32)
        order = np.argsort([len(item) + len(other) for item, other in pairs], kind="stable")
        with torch.inference_mode():
            for start in range(0, len(order), SCORE_BATCH):
                places = order[start : start + SCORE_BATCH].tolist()
                scores[places] = _forward(self.model, self.tokenizer, [pairs[p] for p in places]).numpy()
        return scores.reshape(len(items), -1)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write weights (safetensors), tokenizer and configuration, with their checksums; `overwrite` replaces an
        earlier result in that folder."""
        with atomic_folder(Path(folder), KIND, overwrite=overwrite) as new:
            self.model.save_pretrained(new)
            self.tokenizer.save_pretrained(new)

    @classmethod
    def load(cls, folder: str | Path) -> CrossEncoderReranker:
        """Read what `save` wrote, after checking every file."""
        verify_folder(Path(folder), KIND)
        return cls(*_load_pretrained(Path(folder)))


def train_cross_encoder(
    texts: Sequence[str],
    shortlists: Rows,
    usefulness: Floats,
    base_folder: str | Path,
    *,
    pairs: int = 4_000,
    epochs: int = 1,
    seed: int = 0,
    freeze_layers: int = 4,
) -> CrossEncoderReranker:
    """Train a cross-encoder to predict usefulness, by least squares.

    Args:
        texts: (items,) the texts of the observed items.
        shortlists: (items, S) candidates of each item, −1 pads.
        usefulness: (items, S), as `neighbour_usefulness` returns it.
        base_folder: The folder of the pretrained transformer, such as `metaxc.encoders.Pretrained().folder`.
        pairs: The number of pairs, drawn at random.
        epochs: Passes over the pairs.
        seed: Decides the draw, the order and the head's initial weights.
        freeze_layers: How many of the transformer's lower layers stay frozen, besides its embeddings.
    """
    if shortlists.shape != usefulness.shape or len(shortlists) != len(texts):
        raise DataError(
            "The shapes of texts, shortlists and usefulness do not match",
            got=f"{len(texts)} texts, {shortlists.shape} and {usefulness.shape}",
            expected="(items, candidates) twice, and a text per item",
        )
    random = np.random.default_rng(seed)
    item, place = np.nonzero(shortlists >= 0)
    drawn = random.permutation(len(item))[:pairs]
    if not len(drawn):
        raise DataError("There are no pairs to train on", got="empty shortlists", expected="candidates")
    item, other = item[drawn], shortlists[item[drawn], place[drawn]]
    target = torch.from_numpy(usefulness[item, place[drawn]])
    torch.manual_seed(seed)  # the head's initial weights and dropout draw from the global generator
    model, tokenizer = _load_pretrained(Path(base_folder))
    head = _freeze(model, freeze_layers)
    layers = [p for p in model.parameters() if p.requires_grad and all(p is not h for h in head)]
    groups = ((layers, LEARNING_RATE), (head, HEAD_LEARNING_RATE))
    optimizer = torch.optim.AdamW([{"params": group, "lr": rate} for group, rate in groups if group])
    batches = shuffled_batches(len(drawn), BATCH, random, keep_last=True)

    def compute_loss(step: int) -> torch.Tensor:
        rows = next(batches)
        batch = [(texts[i], texts[o]) for i, o in zip(item[rows], other[rows], strict=True)]
        return torch.nn.functional.mse_loss(_forward(model, tokenizer, batch), target[rows])

    model.train()
    steps = -(-len(drawn) // BATCH) * epochs
    run_training(compute_loss, [optimizer], steps, label="train the cross-encoder")
    return CrossEncoderReranker(model, tokenizer)


def _forward(model: Any, tokenizer: Any, pairs: list[tuple[str, str]]) -> torch.Tensor:
    features = tokenizer(
        [item for item, _ in pairs],
        [other for _, other in pairs],
        padding=True,
        truncation="longest_first",
        max_length=MAX_TOKENS,
        return_tensors="pt",
    )
    scores: torch.Tensor = model(**features).logits[:, 0]
    return scores


def _freeze(model: Any, layers: int) -> list[torch.nn.Parameter]:
    """Freeze the embeddings and lower layers; return the parameters of the head."""
    frozen = [f".layer.{number}." for number in range(layers)]
    head = []
    for name, parameter in model.named_parameters():
        if ".embeddings." in name or any(part in name for part in frozen):
            parameter.requires_grad_(False)
        elif name.startswith("classifier"):
            head.append(parameter)
    return head


def _load_pretrained(folder: Path) -> tuple[Any, Any]:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging

    if not (folder / "config.json").is_file():
        raise ModelError(
            "Not the folder of a transformer", got=folder, expected="a folder with a config.json"
        )
    check_transformer_folder(folder)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    before = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # the head is new on purpose
    try:
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=1, local_files_only=True, trust_remote_code=False
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    finally:
        logging.set_verbosity(before)
    return model.float(), tokenizer
