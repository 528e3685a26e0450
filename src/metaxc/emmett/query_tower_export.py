"""A model's query side as a sentence-transformers folder: whatever loads one can query vectors that metaxc has written.

    SentenceTransformer(folder).encode_query(["marathon gear"])  →  (1, dim + 1), as `Emmett.encode_queries` gives them

The folder names modules of sentence-transformers alone, so it needs neither metaxc nor remote code, unless the adapter
knows bigrams (`metaxc.emmett.token_bag_module`), or the model expands queries (`metaxc.emmett.expansion_module`) or
varies the exposure from query to query (`metaxc.emmett.exposure_module`). How the parts of the query side become such
modules:

- the adapter normalize(x + mean(token vectors) + MLP(x)): `WordEmbeddings` has the token vectors, `WordWeights` leaves
  the special tokens out of their mean, and `Pooling` puts that mean beside x + MLP(x), which two `Dense` layers compute
  with gelu(x) − gelu(−x) = x;
- a prompt: its tokens stand before the query, but are not in the adapter's mean. The first special token takes them
  out again: it has minus their number as its weight, and their mean as its vector;
- a static encoder: `StaticEmbedding`; the query layer: `Dense`, with `LayerNorm` where it is a transformer layer; the
  exposure: the bias of a last `Dense`, unless it follows the response of the classifiers
  (`metaxc.emmett.exposure_module`).

Equal up to rounding for queries of up to `TowerRecord.equal_tokens` word pieces: of longer ones the transformer and the
token bag of a model read different numbers of tokens, here they read the same. The folder has no route for documents:
the vectors of items come from `metaxc represent`, a catalog or `metaxc sync`.
"""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from tokenizers import Tokenizer
from torch import nn

from metaxc.arrays import Floats
from metaxc.artifacts import atomic_folder, save_json
from metaxc.classifiers import QueryTransformer
from metaxc.emmett.model import Emmett
from metaxc.emmett.scoring import ClassifierResponse
from metaxc.encoders import Encoder
from metaxc.encoders.adapted import Adapted, Tower
from metaxc.encoders.pretrained import Pretrained
from metaxc.encoders.tokens import BagTokenizer
from metaxc.errors import ConfigError, ModelError

TOWER_KIND = "query tower"
RECORD_FILE = "query_tower.json"
CHECKED_TEXTS = 64
CHECKED_CHARACTERS = 24  # of each text: surely fewer tokens than any encoder reads
TOLERANCE = 1e-4
"""Largest difference of a coordinate from the model's own: rounding is below 1e-6, an error far above."""

HIDDEN = "adapter_hidden"
FIRST = "cls_token_embeddings"
"""What `Pooling` puts first where it is given; here x + MLP(x)."""


class TowerRecord(BaseModel):
    """What an exported query tower is, as its folder says in `query_tower.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(
        description="fingerprint of the model; metaxc sync writes the same one beside its vectors"
    )
    dim: int = Field(description="numbers per vector, with the exposure as the last")
    exposure: float = Field(description="the last number of every vector")
    varying_exposure: str = Field(
        description="included, left out, or none: whether the exposure follows the classifiers' response to a query"
    )
    expansion: str = Field(description="included, left out, or none: the model expands no queries")
    remote_code: bool = Field(description="whether loading needs metaxc and trust_remote_code=True")
    equal_tokens: int | None = Field(
        description="word pieces up to which a query's vector equals the model's; null for any number"
    )
    largest_difference: float = Field(
        description="of a coordinate from the model's own, computed by torch; with the expansion as exported"
    )
    backend_cosine: float = Field(
        description="lowest cosine similarity with the model's own vectors, by the backend that it was trained with"
    )


def export_query_tower(
    model: Emmett,
    folder: Path,
    *,
    exposure: float | None = None,
    expansion: bool = True,
    overwrite: bool = False,
) -> TowerRecord:
    """Write the query side of a model as a sentence-transformers folder, after comparing it with the model.

    Args:
        model: With an encoder of texts.
        folder: A new or empty folder.
        exposure: The last coordinate of all vectors; None for the value chosen in training.
        expansion: Whether to include the query expansion, where the model has one, and an exposure that follows the
            response of the classifiers; without, the folder needs no metaxc, unless the adapter knows bigrams.
        overwrite: Whether an earlier query tower in that folder is replaced.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Router

    chosen = model.calibration.exposure if exposure is None else exposure
    expands = model.expansion is not None and model.expansion.config.strength > 0
    varies = model.calibration.response_unit is not None
    bigrams = isinstance(model.encoder, Adapted) and len(model.encoder.tokenizer.bigrams) > 0
    remote_code = bigrams or (expansion and (expands or varies))
    twin = _with_torch(model.encoder)
    modules, equal_tokens = _encoder_modules(twin)
    modules += _query_modules(model, expansion and expands, expansion and varies, chosen)
    base = twin if isinstance(twin, Pretrained) else twin.base
    prompt = "" if base is None else base.prompts.query
    tower = SentenceTransformer(
        modules=[Router({"query": modules}, default_route="query")],
        device="cpu",
        prompts={"query": prompt} if prompt else None,
        default_prompt_name="query" if prompt else None,
        similarity_fn_name="dot",
    )
    own = [text.strip()[:CHECKED_CHARACTERS] for text in model.items.texts[:CHECKED_TEXTS]]
    by_torch = _compute_queries(model, twin, own, chosen, expansion)
    by_backend = _compute_queries(model, model.encoder, own, chosen, expansion)
    with atomic_folder(folder, TOWER_KIND, overwrite=overwrite) as new:
        tower.save(str(new), create_model_card=False)
        loaded = SentenceTransformer(
            str(new), device="cpu", local_files_only=True, trust_remote_code=remote_code
        )
        found = np.asarray(loaded.encode_query(own, show_progress_bar=False), dtype=np.float32)
        record = TowerRecord(
            model=model.fingerprint,
            dim=model.encoder.dim + 1,
            exposure=chosen,
            varying_exposure="none" if not varies else "included" if expansion else "left out",
            expansion="none" if not expands else "included" if expansion else "left out",
            remote_code=remote_code,
            equal_tokens=equal_tokens,
            largest_difference=float(np.abs(found - by_torch).max()),
            backend_cosine=_lowest_cosine(found, by_backend),
        )
        if not record.largest_difference <= TOLERANCE:
            raise ModelError(
                "The exported query tower does not compute the model's vectors",
                got=f"a difference of {record.largest_difference:.2g} in a coordinate",
                expected=f"at most {TOLERANCE:g}",
                fix="query through `metaxc serve` or `metaxc represent --queries`, and report the encoder's name",
            )
        save_json(new / RECORD_FILE, record.model_dump())
        (new / "README.md").write_text(_describe(record), encoding="utf-8")
    return record


def _with_torch(encoder: Encoder) -> Adapted | Pretrained:
    """The same encoder, computed by torch whichever backend it was trained with."""
    if isinstance(encoder, Pretrained):
        return Pretrained(encoder.folder, None, "torch", prompts=encoder.prompts)
    if isinstance(encoder, Adapted):
        twin = copy(encoder)
        twin.base = None if encoder.base is None else _with_torch(encoder.base)  # type: ignore[assignment]
        return twin
    raise ConfigError(
        "The model has no encoder of texts",
        got=f"the encoder {encoder.kind}: vectors of your own",
        expected="an adapted, pretrained or static encoder",
        fix="append the exposure to the vectors of your own encoder (docs/sync.md)",
    )


def _compute_queries(
    model: Emmett, encoder: Encoder, texts: list[str], exposure: float, expansion: bool
) -> Floats:
    """(texts, dim + 1) float32: the vectors of a model with another encoder, expanded or not; without the expansion,
    with one exposure for all queries."""
    other = copy(model)
    other.__dict__.pop("_response", None)
    if not expansion:
        other.calibration = model.calibration.model_copy(update={"response_unit": None})
    other.encoder = encoder
    other.expansion = model.expansion if expansion else None
    return other.encode_queries(texts, exposure)


def _encoder_modules(encoder: Adapted | Pretrained) -> tuple[list[Any], int | None]:
    """The modules of the encoder's query side, and up to how many tokens they compute what it computes; None where
    longer texts are cut as the encoder cuts them."""
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    base = encoder if isinstance(encoder, Pretrained) else encoder.base
    if base is None:
        assert isinstance(encoder, Adapted)
        tokenizer = Tokenizer.from_str(encoder.tokenizer.definition)
        tokenizer.enable_truncation(encoder.tokenizer.max_tokens)
        table = encoder.towers.query.table.detach().clone()
        return [StaticEmbedding(tokenizer, embedding_weights=table), Normalize()], None
    modules = [*base.sentence_transformer().children(), Normalize()]
    if isinstance(encoder, Pretrained):
        return modules, None
    if type(modules[0]).__name__ != "Transformer":
        raise ConfigError(
            "The adapter of this encoder cannot be exported",
            got=f"a base that begins with {type(modules[0]).__name__}",
            expected="a base that begins with a transformer, or a static encoder",
            fix="query through `metaxc serve` or `metaxc represent --queries`",
        )
    before, after = BagTokenizer(base.tokenizer_file).boundary_tokens
    prompt = _prompt_tokens(encoder, base.prompts.query, [*before, *after])
    room = base.max_tokens - len(before) - len(after) - len(prompt)
    if len(encoder.tokenizer.bigrams):
        modules += _bigram_modules(encoder, len(before) + len(prompt), len(after))
    else:
        modules += _adapter_modules(encoder.towers.query, [*before, *after], prompt)
    return modules, min(room, encoder.tokenizer.max_tokens)


def _prompt_tokens(encoder: Adapted, prompt: str, special: list[int]) -> list[int]:
    if not prompt:
        return []
    tokens, joined, alone = (
        encoder.tokenizer.read_pieces([text]).tokens.tolist()
        for text in (prompt, f"{prompt}red apple", "red apple")
    )
    if not special or joined != tokens + alone:
        raise ConfigError(
            "The prompt of this encoder cannot be exported",
            got=repr(prompt),
            expected="a prompt whose word pieces do not depend on the query after it",
            fix="query through `metaxc serve` or `metaxc represent --queries`",
        )
    return list(tokens)


def _adapter_modules(tower: Tower, special: list[int], prompt: list[int]) -> list[Any]:
    """The modules that make normalize(x + mean(token vectors) + MLP(x)) of the frozen embedding x.

    Args:
        tower: The adapter of the queries.
        special: Ids of the tokens that begin and end a text.
        prompt: Ids of the tokens of the prompt before each query.
    """
    from sentence_transformers.sentence_transformer.modules import (
        Normalize,
        Pooling,
        WordEmbeddings,
        WordWeights,
    )
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    table = tower.table.detach().clone()
    vocabulary, dim = table.shape
    weights = {str(token): 0.0 for token in special}
    if prompt:
        table[special[0]] = table[prompt].mean(dim=0)
        weights[str(special[0])] = -float(len(prompt))
    same = torch.eye(dim)
    return [
        WordEmbeddings(WhitespaceTokenizer(["unused"]), table),
        WordWeights([str(token) for token in range(vocabulary)], weights),
        *_residual_modules(tower),
        Pooling(dim, ("cls", "mean")),
        _linear(torch.cat([same, same], dim=1)),
        Normalize(),
    ]


def _bigram_modules(encoder: Adapted, before: int, after: int) -> list[Any]:
    """The same for an adapter that knows bigrams.

    Args:
        encoder: The encoder.
        before: Tokens before each query that are not in the adapter's mean.
        after: Tokens after it.
    """
    from sentence_transformers.sentence_transformer.modules import Normalize

    from metaxc.emmett.token_bag_module import AddTokenBag

    tower = encoder.towers.query
    table = tower.table.detach().numpy().copy()
    bag = AddTokenBag(table, encoder.tokenizer.bigrams, before, after, FIRST)
    return [*_residual_modules(tower), bag, Normalize()]


def _residual_modules(tower: Tower) -> list[Any]:
    """x + MLP(x) of the frozen embedding x, as the feature `FIRST`."""
    from sentence_transformers.sentence_transformer.modules import Dense

    dim = tower.table.shape[1]
    same, nothing = torch.eye(dim), torch.zeros(dim)
    hidden, out = tower.hidden, tower.out
    return [
        Dense(
            dim,
            3 * dim,
            activation_function=nn.GELU(),
            init_weight=torch.cat([hidden.weight.detach(), same, -same]),
            init_bias=torch.cat([hidden.bias.detach(), nothing, nothing]),
            module_output_name=HIDDEN,
        ),
        Dense(
            3 * dim,
            dim,
            activation_function=None,
            init_weight=torch.cat([out.weight.detach(), same, -same], dim=1),
            init_bias=out.bias.detach().clone(),
            module_input_name=HIDDEN,
            module_output_name=FIRST,
        ),
    ]


def _query_modules(model: Emmett, expansion: bool, varies: bool, exposure: float) -> list[Any]:
    """What comes after the encoder: the query layer, the expansion, and the exposure as the last coordinate."""
    from sentence_transformers.sentence_transformer.modules import Normalize

    dim = model.encoder.dim
    modules: list[Any] = []
    layer = model.classifiers.query_layer
    if isinstance(layer, QueryTransformer):
        modules += _transformer_modules(layer)
    elif layer is not None:
        weight = torch.eye(dim) + torch.from_numpy(np.array(layer))
        modules += [_linear(weight.T.contiguous()), Normalize()]
    if expansion and model.expansion is not None:
        from metaxc.emmett.expansion_module import ExpandQueries

        modules.append(ExpandQueries(model.expansion))
    if varies:
        from metaxc.emmett.exposure_module import AppendExposure

        response = ClassifierResponse.of(model.classifiers, model.calibration.response_unit)
        return [*modules, AppendExposure(response, exposure)]
    bias = torch.zeros(dim + 1)
    bias[-1] = exposure
    return [*modules, _linear(torch.eye(dim + 1, dim), bias)]


def _transformer_modules(layer: QueryTransformer) -> list[Any]:
    """The modules of a transformer query layer: x + A x is one linear layer, and what the feed-forward layers add to is
    passed around them by gelu(x) − gelu(−x) = x."""
    from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm

    dim = layer.attention.in_features
    same, nothing = torch.eye(dim), torch.zeros(dim)

    def norm(given: nn.LayerNorm) -> Any:
        module = LayerNorm(dim)
        module.norm.load_state_dict(given.state_dict())
        return module

    return [
        _linear(same + layer.attention.weight, layer.attention.bias),
        norm(layer.attention_norm),
        Dense(
            dim,
            layer.hidden.out_features + 2 * dim,
            activation_function=nn.GELU(),
            init_weight=torch.cat([layer.hidden.weight, same, -same]),
            init_bias=torch.cat([layer.hidden.bias, nothing, nothing]),
        ),
        _linear(torch.cat([layer.out.weight, same, -same], dim=1), layer.out.bias),
        norm(layer.out_norm),
    ]


def _linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
    from sentence_transformers.sentence_transformer.modules import Dense

    return Dense(
        weight.shape[1],
        weight.shape[0],
        bias=bias is not None,
        activation_function=None,
        init_weight=weight,
        init_bias=bias,
    )


def _lowest_cosine(found: Floats, wanted: Floats) -> float:
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
    return float(((found * wanted).sum(axis=1) / np.maximum(lengths, 1e-9)).min())


def _describe(record: TowerRecord) -> str:
    """The folder's README.md."""
    option = ", trust_remote_code=True" if record.remote_code else ""
    needs = (
        "It needs the package metaxc, from which the modules of bigrams, query expansion and exposure are imported.\n"
        if record.remote_code
        else "It needs sentence-transformers and nothing else.\n"
    )
    left_out = (
        "The model's query expansion was left out: the vectors are not those of `metaxc represent --queries`.\n"
        if record.expansion == "left out"
        else ""
    )
    varying = (
        "The model varies the exposure from query to query; here it is the same for all.\n"
        if record.varying_exposure == "left out"
        else ""
    )
    return (
        f"# Query tower of the metaxc model {record.model[:16]}\n\n"
        f'    SentenceTransformer("this folder"{option}).encode_query(["a query"])\n\n'
        f"{needs}{left_out}{varying}"
        f"Vectors have {record.dim} numbers; the last is the exposure, {record.exposure:g}. The score of an item is "
        "their inner product\nwith the item's vector: do not normalize them. `encode_document` is an error: the "
        "vectors of items are not made of their\ntexts alone; `metaxc represent`, a catalog and `metaxc sync` write "
        "them.\n"
    )
