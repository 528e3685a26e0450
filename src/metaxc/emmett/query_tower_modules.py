"""The modules of sentence-transformers that compute the query side of a model.

How its parts become such modules:

- the adapter normalize(x + mean(token vectors) + MLP(x)): `WordEmbeddings` has the token vectors, `WordWeights` leaves
  the special tokens out of their mean, and `Pooling` puts that mean beside x + MLP(x), which two `Dense` layers compute
  with gelu(x) − gelu(−x) = x; where it knows bigrams, `metaxc.emmett.token_bag_module` adds the mean instead;
- a prompt: its tokens stand before the query, but are not in the adapter's mean. The first special token takes them
  out again: it has minus their number as its weight, and their mean as its vector;
- a static encoder: `StaticEmbedding`; the query layer: `Dense`, with `LayerNorm` where it is a transformer layer; the
  exposure: the bias of a last `Dense`, unless it follows the response of the classifiers
  (`metaxc.emmett.exposure_module`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn

from metaxc.classifiers import QueryTransformer
from metaxc.emmett.model import Emmett
from metaxc.emmett.scoring import ClassifierResponse
from metaxc.encoders.adapted import Adapted, Tower
from metaxc.encoders.pretrained import Pretrained
from metaxc.encoders.tokens import BagTokenizer
from metaxc.errors import ConfigError

HIDDEN = "adapter_hidden"
FIRST = "cls_token_embeddings"
"""What `Pooling` puts first where it is given; here x + MLP(x)."""


def encoder_modules(encoder: Adapted | Pretrained) -> tuple[list[Any], int | None]:
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


def query_modules(model: Emmett, expansion: bool, varies: bool, exposure: float) -> list[Any]:
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
