"""SemSup-XC: learned semantic similarity plus learned token matching (Aggarwal et al., 2023).

score(q, i) = ⟨x', s'⟩ + Σ over tokens t in both texts of ⟨u(t, q), v(t, i)⟩

x' = normalize(x + Ax) and s' = normalize(s + Bs) are learned projections of the frozen sentence embeddings. The
vectors of a token, u(t, q) = e(t) + Pe₀(t) + Cx and v(t, i) = e(t) + Re₀(t) + Ds, have `TOKEN_DIM` dimensions. They
consist of a learned table e, projections P and R of the encoder's static token embeddings e₀ (which give tokens without
training examples a vector), and the context from the sentence embedding. The table is initialised with the tokens'
rarity, so training starts from a semantic plus a TF-IDF-like score. It is trained on clicks with an in-batch softmax
and hard negatives by TF-IDF, which is the paper's sampling.

Differences from the original, which fine-tunes a BERT on a GPU for hours: the transformer is frozen; tokens get their
context from the sentence embedding instead of attention, so all occurrences of a token in a text have one vector and
the maximum over them is not needed (a token counts once per text); tokens match exactly, without the paper's clusters
of related tokens; an item's description is its own text, not a web page; the other items of a batch are negatives too,
with the logQ correction of our own encoder.

Training takes minutes on one core, at most `MAX_STEPS` steps. Scores are computed by three sparse products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional

from metaxc.arrays import Floats, Rows
from metaxc.data import Dataset
from metaxc.data.clicks import click_mask, draw_clicks, training_clicks
from metaxc.encoders import Encoder
from metaxc.encoders.tokens import BagTokenizer, TokenBags
from metaxc.encoders.training.negatives import hardest
from metaxc.evaluation.searches import QueryEncoder, encode_test_queries_once
from metaxc.research.baselines.term_matching import TermVectorizer
from metaxc.training_loop import run_training, shuffled_batches

TOKEN_DIM = 8
BATCH = 256
EPOCHS, MAX_STEPS = 4, 400
MINED_NEGATIVES = 10
"""Hard negatives per query that a batch can draw from."""
BATCH_NEGATIVES = 1
"""Hard negatives per query in a batch."""

LEARNING_RATE = 2e-3
LOGQ_CORRECTION = 0.75
"""logQ correction: subtract this × log(clicks) from the item's logit when it is a negative."""
SCALE = 12.0
"""Multiplies the scores to give logits; the initial value of a trained parameter."""
LEXICAL_WEIGHT = 0.1
"""What a match of the rarest token adds to the score at the start, beside a cosine of at most 1."""


class TokenEncoder(Encoder, Protocol):
    """An encoder with access to its tokens: `metaxc.encoders.Pretrained`."""

    @property
    def tokenizer_file(self) -> Path:
        """A `tokenizer.json`."""

    def token_table(self) -> Floats | None:
        """(vocabulary, n) float32 static token embeddings, or None."""


class HybridModel(nn.Module):
    """The trained part: both projections and the token vectors.

    Args:
        static: (vocabulary, dim) the encoder's token embeddings, which stay fixed.
        rarity: (vocabulary,) in [0, 1]; the initial inner product of a token's two vectors is proportional to it.
        dim: Dimension of the sentence embeddings.
    """

    static: Tensor

    def __init__(self, static: Tensor, rarity: Tensor, dim: int):
        super().__init__()
        self.register_buffer("static", static)
        start = torch.zeros(len(static), TOKEN_DIM)
        start[:, 0] = (LEXICAL_WEIGHT * rarity).sqrt()
        self.table = nn.Parameter(start)
        self.query, self.item = (nn.Linear(dim, dim, bias=False) for _ in range(2))
        self.query_token, self.item_token = (
            nn.Linear(static.shape[1], TOKEN_DIM, bias=False) for _ in range(2)
        )
        self.query_context, self.item_context = (nn.Linear(dim, TOKEN_DIM, bias=False) for _ in range(2))
        for layer in (self.query, self.item):
            nn.init.zeros_(layer.weight)
        for layer in (self.query_token, self.item_token, self.query_context, self.item_context):
            nn.init.normal_(layer.weight, std=0.01)
        self.log_scale = nn.Parameter(torch.tensor(SCALE).log())

    def query_side(self, x: Tensor, tokens: Tensor) -> Side:
        """The vectors of (queries, dim) embeddings and of the requested token ids."""
        projected = functional.normalize(x + self.query(x), dim=1)
        return Side(
            projected, self.table[tokens] + self.query_token(self.static[tokens]), self.query_context(x)
        )

    def item_side(self, s: Tensor, tokens: Tensor) -> Side:
        """The vectors of (items, dim) embeddings and of the requested token ids."""
        projected = functional.normalize(s + self.item(s), dim=1)
        return Side(
            projected, self.table[tokens] + self.item_token(self.static[tokens]), self.item_context(s)
        )


@dataclass(frozen=True)
class Side:
    """The vectors of queries, or of items; the vector of token t in a text is tokens[t] + context[text].

    Args:
        projected: (texts, dim) unit rows.
        tokens: (tokens, TOKEN_DIM).
        context: (texts, TOKEN_DIM).
    """

    projected: Tensor
    tokens: Tensor
    context: Tensor


def batch_scores(query: Side, item: Side, in_query: Tensor, in_item: Tensor) -> Tensor:
    """(queries, items): the cosine plus the inner products of the shared tokens' vectors, expanded as
    Σ ⟨u + c, v + d⟩ = Σ ⟨u, v + d⟩ + Σ ⟨c, v⟩ + ⟨c, d⟩ · (number of shared tokens).

    Args:
        query: The vectors of the queries.
        item: The vectors of the items.
        in_query: (queries, tokens) 1 where a query contains the token.
        in_item: (items, tokens).
    """
    both = (query.tokens * item.tokens).sum(dim=1)
    by_item = in_item * (both + item.context @ query.tokens.T)
    by_query = in_query * (query.context @ item.tokens.T)
    shared = in_query @ in_item.T
    lexical = in_query @ by_item.T + by_query @ in_item.T + shared * (query.context @ item.context.T)
    return query.projected @ item.projected.T + lexical


class FittedSemSup:
    """The trained model with all items represented.

    Args:
        model: The trained part.
        tokenizer: Converts texts to tokens.
        encode: Query texts to (n, dim) float32.
        items: (items, dim) float32 sentence embeddings.
        item_bags: The items' tokens.
    """

    def __init__(
        self,
        model: HybridModel,
        tokenizer: BagTokenizer,
        encode: QueryEncoder,
        items: Floats,
        item_bags: TokenBags,
    ):
        self.model, self.tokenizer, self.encode = model, tokenizer, encode
        everything = torch.arange(len(model.table))
        with torch.inference_mode():
            self.item = model.item_side(torch.from_numpy(items), everything)
            self.query_tokens = model.query_side(torch.zeros(0, items.shape[1]), everything).tokens
            both = (self.query_tokens * self.item.tokens).sum(dim=1).numpy()
        self.in_item = incidence(item_bags, len(everything))
        self.by_item = self.in_item.copy()
        row = np.repeat(np.arange(len(items)), np.diff(self.in_item.indptr))
        self.by_item.data = both[self.in_item.indices] + _products(
            self.item.context.numpy(), row, self.query_tokens.numpy(), self.in_item.indices
        )

    def scores(self, queries: Sequence[str]) -> Floats:
        """(queries, items) semantic plus lexical scores."""
        in_query = incidence(self.tokenizer(queries), self.in_item.shape[1])
        with torch.inference_mode():
            side = self.model.query_side(torch.from_numpy(np.array(self.encode(queries))), torch.arange(0))
            semantic: Floats = (side.projected @ self.item.projected.T).numpy()
            contexts: Floats = (side.context @ self.item.context.T).numpy()
        return semantic + self._lexical(in_query, side.context.numpy(), contexts)

    def _lexical(self, in_query: csr_array, context: Floats, contexts: Floats) -> Floats:
        """(queries, items): the lexical part of `batch_scores`, by sparse products over all tokens."""
        row = np.repeat(np.arange(in_query.shape[0]), np.diff(in_query.indptr))
        by_query = in_query.copy()
        by_query.data = _products(context, row, self.item.tokens.numpy(), in_query.indices)
        found: Floats = (in_query @ self.in_item.T).toarray()
        found *= contexts
        found += in_query @ self.by_item.T
        found += by_query @ self.in_item.T
        return found


class SemSupXC:
    """Semantic similarity and token matching, learned from clicks.

    Args:
        base: A frozen encoder with access to its tokens.
        seed: Seed of the order, the negatives and the initial weights.
    """

    name: ClassVar[str] = "SemSup-XC"

    def __init__(self, base: TokenEncoder, seed: int = 0):
        self.base, self.seed = base, seed

    def fit(self, dataset: Dataset) -> FittedSemSup:
        """Train on the clicks on observed items, and represent all items."""
        observed, query_rows, clicks = training_clicks(dataset)
        tokenizer = BagTokenizer(self.base.tokenizer_file)
        query_bags = tokenizer(dataset.train.queries.texts).take(query_rows)
        item_bags = tokenizer(dataset.items.texts)
        queries = np.asarray(self.base.encode_queries(dataset.train.queries.texts)[query_rows])
        items = np.array(self.base.encode_items(dataset.items.texts))
        in_query = incidence(query_bags, tokenizer.vocabulary)
        in_item = csr_array(incidence(item_bags, tokenizer.vocabulary)[observed])
        torch.manual_seed(self.seed)
        static = self.base.token_table()
        model = HybridModel(
            torch.zeros(tokenizer.vocabulary, 1) if static is None else torch.from_numpy(static),
            torch.from_numpy(rarity(in_query, in_item)),
            items.shape[1],
        )
        negatives = _tfidf_negatives(dataset, observed, query_rows, clicks)
        train(model, queries, items[observed], in_query, in_item, clicks, negatives, self.seed)
        encode = encode_test_queries_once(self.base.encode_queries, dataset)
        return FittedSemSup(model.eval(), tokenizer, encode, items, item_bags)


def train(
    model: HybridModel,
    queries: Floats,
    items: Floats,
    in_query: csr_array,
    in_item: csr_array,
    clicks: csr_array,
    negatives: Rows,
    seed: int,
) -> None:
    """Train `model` in place: each query's clicked item against the others of its batch and hard negatives.

    Args:
        model: The model to train.
        queries: (queries, dim) embeddings.
        items: (observed, dim) embeddings.
        in_query: (queries, vocabulary) 1 where a query contains a token.
        in_item: (observed, vocabulary).
        clicks: (queries, observed); every query has at least one.
        negatives: (queries, MINED_NEGATIVES) columns of `clicks`, −1 for padding.
        seed: Seed of the order and the draws.
    """
    random = np.random.default_rng(seed)
    counts = np.bincount(clicks.indices, minlength=clicks.shape[1])
    correction = LOGQ_CORRECTION * torch.from_numpy(np.log(np.maximum(counts, 1)).astype(np.float32))
    batch = min(BATCH, len(queries))
    batches = shuffled_batches(len(queries), batch, random, keep_last=False)

    def compute_loss(step: int) -> Tensor:
        rows = next(batches)
        drawn = negatives[rows][:, random.permutation(negatives.shape[1])[:BATCH_NEGATIVES]].ravel()
        columns = np.concatenate([draw_clicks(clicks, rows, random), drawn[drawn >= 0]])
        tokens = np.unique(in_query[rows].indices)  # tokens that no query of the batch contains add nothing
        token_ids = torch.from_numpy(tokens.astype(np.int64))
        logits = model.log_scale.exp() * batch_scores(
            model.query_side(torch.from_numpy(queries[rows]), token_ids),
            model.item_side(torch.from_numpy(items[columns]), token_ids),
            torch.from_numpy(in_query[rows][:, tokens].toarray()),
            torch.from_numpy(in_item[columns][:, tokens].toarray()),
        )
        clicked = torch.from_numpy(click_mask(clicks, rows, columns))
        target = torch.arange(len(rows))
        clicked[target, target] = False
        logits = (logits - correction[columns]).masked_fill(clicked, float("-inf"))
        return functional.cross_entropy(logits, target)

    steps = min(MAX_STEPS, EPOCHS * max(1, len(queries) // batch))
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    run_training(compute_loss, [optimizer], steps, label="train SemSup-XC")


def incidence(bags: TokenBags, vocabulary: int) -> csr_array:
    """(texts, vocabulary) float32, 1 where a text contains a token at least once."""
    ones = np.ones(len(bags.tokens), np.float32)
    found = csr_array((ones, bags.tokens.copy(), bags.starts.copy()), shape=(len(bags), vocabulary))
    found.sum_duplicates()
    found.data[:] = 1.0
    return found


def rarity(in_query: csr_array, in_item: csr_array) -> Floats:
    """(vocabulary,) float32 in [0, 1]: the inverse document frequency of each token, 1 for tokens that never occur."""
    texts = in_query.shape[0] + in_item.shape[0]
    seen = np.bincount(np.concatenate([in_query.indices, in_item.indices]), minlength=in_query.shape[1])
    found: Floats = (np.log((1 + texts) / (1 + seen)) / np.log(1 + texts)).astype(np.float32)
    return found


def _tfidf_negatives(dataset: Dataset, observed: Rows, query_rows: Rows, clicks: csr_array) -> Rows:
    terms = TermVectorizer(dataset)
    items = terms([dataset.items.texts[row] for row in observed]).T
    queries = terms([dataset.train.queries.texts[row] for row in query_rows])
    return hardest(lambda rows: (queries[rows] @ items).toarray(), clicks, MINED_NEGATIVES)


def _products(left: Floats, rows: Rows, right: Floats, columns: NDArray[np.integer]) -> Floats:
    """(pairs,) ⟨left[row], right[column]⟩."""
    found: Floats = np.einsum("nd,nd->n", left[rows], right[columns])
    return found
