"""Query layers: what they compute, and that they come back from a file as they were."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from metaxc.artifacts import load_arrays, save_arrays
from metaxc.classifiers import Classifiers, QueryTransformer
from metaxc.errors import ModelError

DIM = 8


@pytest.fixture
def queries():
    return np.random.default_rng(0).normal(size=(5, DIM)).astype(np.float32)


def learnt(dim=DIM):
    """A layer away from its start, where most of its parts do nothing yet."""
    torch.manual_seed(0)
    layer = QueryTransformer(dim)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return layer.frozen()


def classifiers(layer):
    return Classifiers(np.ones((3, DIM), np.float32), np.array([1, 2, 3]), layer)


def test_the_layer_by_hand(queries):
    layer, x = learnt(), torch.from_numpy(queries)

    def norm(rows, given):
        rows = (rows - rows.mean(1, keepdim=True)) / (rows.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        return rows * given.weight + given.bias

    h = norm(x + x @ layer.attention.weight.T + layer.attention.bias, layer.attention_norm)
    inner = functional.gelu(h @ layer.hidden.weight.T + layer.hidden.bias)
    expected = norm(h + inner @ layer.out.weight.T + layer.out.bias, layer.out_norm)
    np.testing.assert_allclose(classifiers(layer).transform_queries(queries), expected.numpy(), atol=1e-5)


def test_it_starts_at_the_embedding(queries):
    centred = queries - queries.mean(axis=1, keepdims=True)
    expected = np.sqrt(DIM) * centred / np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(QueryTransformer(DIM).transform(queries), expected, atol=1e-3)


def test_it_is_what_self_attention_over_one_token_is(queries):
    """A transformer layer of torch with the same weights, whatever its queries and keys."""
    layer = learnt()
    torch.manual_seed(1)
    whole = torch.nn.TransformerEncoderLayer(DIM, 2, 2 * DIM, activation="gelu", batch_first=True).eval()
    with torch.no_grad():
        attention = whole.self_attn
        attention.in_proj_weight[2 * DIM :] = layer.attention.weight
        attention.in_proj_bias[2 * DIM :] = layer.attention.bias
        attention.out_proj.weight.copy_(torch.eye(DIM))
        attention.out_proj.bias.zero_()
        pairs = ((whole.norm1, layer.attention_norm), (whole.linear1, layer.hidden))
        for mine, given in (*pairs, (whole.linear2, layer.out), (whole.norm2, layer.out_norm)):
            mine.load_state_dict(given.state_dict())
        expected = whole(torch.from_numpy(queries)[:, None])[:, 0]
    np.testing.assert_allclose(layer.transform(queries), expected.numpy(), atol=1e-5)


def test_dropout_is_for_training_alone(queries):
    layer = learnt().train()
    first, again = (layer.transform(queries) for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("layer", [None, 0.1 * np.eye(DIM, dtype=np.float32)[::-1].copy(), learnt()])
def test_classifiers_come_back_from_a_file_with_their_query_layer(layer, queries, tmp_path):
    given = classifiers(layer)
    given.save(tmp_path / "classifiers.safetensors")
    again = Classifiers.load(tmp_path / "classifiers.safetensors")
    np.testing.assert_array_equal(again.transform_queries(queries), given.transform_queries(queries))
    assert repr(again) == repr(given)
    assert type(again.query_layer) is type(given.query_layer)


@pytest.mark.parametrize("change", ["missing", "shape", "finite"])
def test_a_damaged_layer_is_refused(change, tmp_path):
    file = tmp_path / "classifiers.safetensors"
    classifiers(learnt()).save(file)
    arrays, name = load_arrays(file), "query_layer.out.weight"
    if change == "missing":
        del arrays[name]
    else:
        arrays[name] = arrays[name][:, 1:] if change == "shape" else np.full_like(arrays[name], np.nan)
    save_arrays(file, arrays)
    with pytest.raises(ModelError, match="query_layer" if change != "shape" else "wrong shape"):
        Classifiers.load(file)


@pytest.mark.parametrize("layer", [0.1 * np.ones((DIM, DIM), np.float32), learnt()])
def test_gradients_flow_through_the_same_function(layer, queries):
    given = classifiers(layer)
    x = torch.from_numpy(queries).requires_grad_()
    found = given.query_function(x)
    np.testing.assert_allclose(found.detach().numpy(), given.transform_queries(queries), atol=1e-6)
    (found**3).sum().backward()
    assert x.grad.abs().max() > 0
    assert classifiers(None).query_function is None
