"""A model's query side as a sentence-transformers folder: the same vectors, without metaxc where that is possible."""

import json

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sentence_transformers import SentenceTransformer

from metaxc.classifiers import Classifiers, QueryTransformer
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.emmett import Calibration, Emmett, ExpansionConfig, QueryExpansion
from metaxc.emmett.query_tower_export import export_query_tower
from metaxc.encoders import Pretrained
from metaxc.encoders.adapted import Adapted, Static, TwoTowers
from metaxc.encoders.base_names import Prompts
from metaxc.encoders.tokens import BagTokenizer
from metaxc.errors import ConfigError, ModelError
from metaxc.generators import Combine

QUERIES = [
    "cheap lemon",
    "small wild cat",
    "a red green old young apple",
    "xyzzy",
    "fresh fresh bread",
    "pear, plum!",
]


def build_towers(vocabulary: int, dim: int, base: bool) -> TwoTowers:
    torch.manual_seed(3)
    towers = TwoTowers(vocabulary, dim, base)
    with torch.no_grad():
        for tensor in towers.query.parameters():
            tensor.normal_(0.0, 0.3)
    return towers


def build_query_transformer():
    """A layer away from its start, where most of its parts do nothing yet."""
    torch.manual_seed(0)
    layer = QueryTransformer(64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return layer.frozen()


@pytest.fixture
def build(tiny, shop):
    """A model with an encoder of one kind, and whatever else the query side may have."""

    def build_model(kind="adapted", prompt="", layer="none", strength=0.0, exposure=0.25) -> Emmett:
        base = Pretrained(tiny, prompts=Prompts(query=prompt))
        tokenizer = BagTokenizer(tiny / "tokenizer.json")
        bags = tokenizer.read_pieces([*shop.items.texts, *QUERIES[1:]])
        paired = tokenizer.with_bigrams(np.unique(bags.bigrams(tokenizer.pieces)[0]))
        encoder = {
            "pretrained": lambda: base,
            "adapted": lambda: Adapted(base, build_towers(tokenizer.vocabulary, base.dim, True), tokenizer),
            "bigrams": lambda: Adapted(base, build_towers(paired.vocabulary, base.dim, True), paired),
            "static": lambda: Static(None, build_towers(tokenizer.vocabulary, base.dim, False), tokenizer),
        }[kind]()
        random = np.random.default_rng(0)
        observed = np.arange(10)
        embeddings = encoder.encode_items(shop.items.texts[:10])
        query_layer = {
            "none": lambda: None,
            "linear": lambda: 0.2 * random.normal(size=(64, 64)).astype(np.float32),
            "transformer": build_query_transformer,
        }[layer]()
        weights = normalize_rows(random.normal(size=(10, 64)))
        classifiers = Classifiers(weights, np.full(10, 5), query_layer)
        clicks = csr_array(np.eye(10, dtype=np.float32))
        asked = encoder.encode_queries(shop.train.queries.texts[:10])
        expansion = QueryExpansion(
            asked, clicks, embeddings, ExpansionConfig(neighbours=3, strength=strength)
        )
        return Emmett(
            encoder,
            classifiers,
            embeddings,
            Combine(0.5, 0.1),
            shop.items,
            observed,
            calibration=Calibration(exposure=exposure),
            expansion=expansion if strength else None,
        )

    return build_model


@pytest.mark.parametrize("kind", ["adapted", "static", "pretrained"])
@pytest.mark.parametrize("layer", ["none", "linear", "transformer"])
def test_the_folder_computes_the_models_query_vectors(build, tmp_path, kind, layer):
    model = build(kind, layer=layer)
    record = export_query_tower(model, tmp_path / "tower")
    found = SentenceTransformer(str(tmp_path / "tower")).encode_query(QUERIES)
    wanted = model.encode_queries(QUERIES)
    assert found.shape == (len(QUERIES), 65)
    assert found == pytest.approx(wanted, abs=1e-5)
    assert found[:, -1].tolist() == [0.25] * len(QUERIES)
    assert record.largest_difference < 1e-5
    assert record.backend_cosine == pytest.approx(1.0, abs=1e-5)
    assert (record.expansion, record.remote_code, record.model) == ("none", False, model.fingerprint)
    untrained = Pretrained(model.encoder.base.folder).encode_queries(QUERIES) if kind == "adapted" else None
    assert untrained is None or np.abs(found[:, :-1] - untrained).max() > 0.05  # the adapter does something


def test_every_module_is_one_of_sentence_transformers_and_no_file_is_pickled(build, tmp_path):
    export_query_tower(build(layer="linear"), tmp_path / "tower")
    router = json.loads((tmp_path / "tower" / "router_config.json").read_text())
    modules = json.loads((tmp_path / "tower" / "modules.json").read_text())
    types = [*router["types"].values(), *(module["type"] for module in modules)]
    assert all(name.startswith("sentence_transformers.") for name in types)
    assert len(types) == 14
    kinds = {file.suffix for file in (tmp_path / "tower").rglob("*") if file.is_file()}
    assert kinds <= {".json", ".safetensors", ".md", ".txt"}


@pytest.mark.parametrize("kind", ["adapted", "pretrained"])
def test_a_prompt_is_read_by_the_transformer_and_not_by_the_adapter(build, tmp_path, kind):
    model = build(kind, prompt="price of fish: ")
    record = export_query_tower(model, tmp_path / "tower")
    loaded = SentenceTransformer(str(tmp_path / "tower"))
    wanted = model.encode_queries(QUERIES)
    assert loaded.encode_query(QUERIES) == pytest.approx(wanted, abs=1e-5)
    assert loaded.encode(QUERIES) == pytest.approx(wanted, abs=1e-5)  # for tools that know one side only
    assert np.abs(build(kind).encode_queries(QUERIES) - wanted).max() > 0.01
    assert record.equal_tokens == (32 - 2 - 4 if kind == "adapted" else None)


def test_a_prompt_that_runs_into_the_query_is_refused(build, tmp_path):
    with pytest.raises(ConfigError, match="prompt of this encoder cannot be exported"):
        export_query_tower(build(prompt="short"), tmp_path / "tower")


def test_queries_as_long_as_the_transformer_reads_are_equal(build, tmp_path):
    model = build()
    record = export_query_tower(model, tmp_path / "tower")
    assert record.equal_tokens == 30
    long = [" ".join(["red", "apple", "old"] * 10), "pear"]
    assert SentenceTransformer(str(tmp_path / "tower")).encode_query(long) == pytest.approx(
        model.encode_queries(long), abs=1e-5
    )


def test_query_expansion_is_a_module_of_metaxc(build, tmp_path):
    model = build(strength=0.7)
    record = export_query_tower(model, tmp_path / "tower")
    assert (record.expansion, record.remote_code) == ("included", True)
    loaded = SentenceTransformer(str(tmp_path / "tower"), trust_remote_code=True)
    wanted = model.encode_queries(QUERIES)
    assert loaded.encode_query(QUERIES) == pytest.approx(wanted, abs=1e-5)
    assert "trust_remote_code=True" in (tmp_path / "tower" / "README.md").read_text()
    assert not list((tmp_path / "tower").rglob("*.py"))


def test_query_expansion_can_be_left_out_and_the_folder_says_so(build, tmp_path):
    model = build(strength=0.7)
    record = export_query_tower(model, tmp_path / "tower", expansion=False)
    assert (record.expansion, record.remote_code) == ("left out", False)
    found = SentenceTransformer(str(tmp_path / "tower")).encode_query(QUERIES)
    assert found == pytest.approx(build().encode_queries(QUERIES), abs=1e-5)
    assert np.abs(found - model.encode_queries(QUERIES)).max() > 0.01
    assert "left out" in (tmp_path / "tower" / "README.md").read_text()


def test_an_exposure_that_follows_the_query_is_a_module_of_metaxc(build, tmp_path):
    model = build()
    model.calibration = model.calibration.model_copy(update={"response_unit": 0.5, "exposure": 0.4})
    record = export_query_tower(model, tmp_path / "tower")
    assert (record.varying_exposure, record.remote_code) == ("included", True)
    loaded = SentenceTransformer(str(tmp_path / "tower"), trust_remote_code=True)
    wanted = model.encode_queries(QUERIES)
    assert np.ptp(wanted[:, -1]) > 0.01
    assert loaded.encode_query(QUERIES) == pytest.approx(wanted, abs=1e-5)
    record = export_query_tower(model, tmp_path / "plain", expansion=False)
    assert (record.varying_exposure, record.remote_code) == ("left out", False)
    found = SentenceTransformer(str(tmp_path / "plain")).encode_query(QUERIES)
    assert found[:, -1] == pytest.approx(0.4)
    assert found[:, :-1] == pytest.approx(wanted[:, :-1], abs=1e-5)


def test_another_exposure_is_the_last_number(build, tmp_path):
    export_query_tower(build(), tmp_path / "tower", exposure=-0.5)
    assert SentenceTransformer(str(tmp_path / "tower")).encode_query(["cat"])[0, -1] == -0.5


def test_documents_are_refused(build, tmp_path):
    export_query_tower(build("static"), tmp_path / "tower")
    loaded = SentenceTransformer(str(tmp_path / "tower"))
    with pytest.raises(ValueError, match="document"):
        loaded.encode_document(["small cat"])
    assert loaded.similarity_fn_name == "dot"


def test_a_model_of_vectors_is_refused(world, tmp_path):
    from world_model import build_model

    with pytest.raises(ConfigError, match="no encoder of texts"):
        export_query_tower(build_model(world), tmp_path / "tower")


def test_a_tower_that_differs_from_the_model_is_not_written(build, tmp_path, monkeypatch):
    model = build()
    monkeypatch.setattr("metaxc.emmett.query_tower_export.TOLERANCE", -1.0)
    with pytest.raises(ModelError, match="does not compute the model's vectors"):
        export_query_tower(model, tmp_path / "tower")
    assert not (tmp_path / "tower").exists()


@pytest.mark.parametrize("prompt", ["", "query: "])
def test_an_adapter_with_bigrams_is_exported_with_them(build, tmp_path, prompt):
    model = build("bigrams", prompt=prompt)
    without = build("adapted", prompt=prompt)
    record = export_query_tower(model, tmp_path / "tower", expansion=False)
    assert record.remote_code
    found = SentenceTransformer(str(tmp_path / "tower"), trust_remote_code=True).encode_query(QUERIES)
    assert found == pytest.approx(model.encode_queries(QUERIES), abs=1e-5)
    assert np.abs(found - without.encode_queries(QUERIES)).max() > 0.05
    assert "needs the package metaxc" in (tmp_path / "tower" / "README.md").read_text()
