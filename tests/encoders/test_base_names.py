"""Base encoders by hub name, and the prompts that some of them need."""

import json
import shutil

import numpy as np
import pytest

from metaxc.catalog import Catalog, NewItem
from metaxc.catalog.schema import decode_vector
from metaxc.classifiers import Classifiers
from metaxc.data import Texts, split
from metaxc.emmett import Emmett
from metaxc.encoders import EmbeddingCache, Pretrained, load_encoder
from metaxc.encoders.base_names import Prompts, find_base, find_prompts
from metaxc.errors import ModelError
from metaxc.generators import Combine
from metaxc.irene import Irene

QUERY, ITEM = "fresh price ", "old text "
"""Prompts of words that the tiny tokenizer knows."""


@pytest.fixture
def e5(tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "e5-small-v2")
    return tmp_path / "e5-small-v2"


@pytest.fixture
def prompted(tiny, tmp_path):
    """An encoder whose folder names its prompts, as sentence-transformers writes them."""
    folder = tmp_path / "prompted"
    shutil.copytree(tiny, folder)
    settings = folder / "config_sentence_transformers.json"
    facts = json.loads(settings.read_text()) if settings.is_file() else {}
    settings.write_text(json.dumps({**facts, "prompts": {"query": QUERY, "document": ITEM}}))
    return folder


def test_families_are_known_by_their_names(tiny):
    e5 = Prompts(query="query: ", item="passage: ")
    for name in ("intfloat/e5-small-v2", "models/multilingual-e5-large", "e5-base"):
        assert find_prompts(name, tiny) == e5
    bge = find_prompts("BAAI/bge-small-en-v1.5", tiny)
    assert bge.query.startswith("Represent this sentence")
    assert bge.item == ""
    for name in ("all-MiniLM-L6-v2", "BAAI/bge-m3", "intfloat/e5-mistral-7b-instruct", "e5-small-v2-mine"):
        assert not find_prompts(name, tiny)


def test_what_a_folder_names_comes_first(prompted, e5):
    assert find_prompts("e5-small", prompted) == Prompts(query=QUERY, item=ITEM)
    assert find_prompts(str(e5), e5) == Prompts(query="query: ", item="passage: ")


def test_prompts_stand_before_the_texts(prompted, tiny):
    plain, encoder = Pretrained(tiny), Pretrained(prompted)
    texts = ["red apple", "wooden chair"]
    expected = plain.encode([QUERY + text for text in texts])
    np.testing.assert_allclose(encoder.encode_queries(texts), expected, atol=1e-6)
    np.testing.assert_allclose(
        encoder.encode_items(texts), plain.encode([ITEM + text for text in texts]), atol=1e-6
    )
    assert not np.allclose(encoder.encode_queries(texts), encoder.encode_items(texts), atol=1e-3)
    without = Pretrained(prompted, prompts=Prompts())
    assert without.fingerprint != encoder.fingerprint, "other prompts, another encoder"
    assert plain.fingerprint == plain.weights, "without prompts the fingerprint is what it was"
    assert "prompts" in repr(encoder)
    assert "prompts" not in repr(plain)


def test_a_saved_reference_keeps_the_prompts_wherever_the_weights_move(e5, tmp_path):
    (tmp_path / "saved").mkdir()
    encoder = Pretrained(e5)
    encoder.save(tmp_path / "saved")
    moved = tmp_path / "elsewhere"
    shutil.move(e5, moved)
    loaded = load_encoder(tmp_path / "saved", base=moved)
    assert loaded.prompts == Prompts(query="query: ", item="passage: ")
    assert loaded.fingerprint == encoder.fingerprint


@pytest.mark.parametrize("backend", ["torch", "onnx", "onnx-int8"])
def test_every_backend_reads_the_prompts(prompted, tiny, backend, tmp_path):
    cache = EmbeddingCache(tmp_path / "cache")
    plain, encoder = Pretrained(tiny, cache, backend), Pretrained(prompted, cache, backend)
    np.testing.assert_allclose(
        encoder.encode_queries(["red apple"]), plain.encode([QUERY + "red apple"]), atol=1e-5
    )
    np.testing.assert_allclose(
        encoder.encode_items(["red apple"]), plain.encode([ITEM + "red apple"]), atol=1e-5
    )
    assert not np.allclose(
        encoder.encode_queries(["red apple"]), encoder.encode_items(["red apple"]), atol=1e-2
    )


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_a_catalog_reads_the_prompts(prompted, tiny, backend, tmp_path):
    """What is served is encoded as in training: items with their prompt, queries of searches and clicks with theirs."""
    items, plain = Texts(["a", "b"], ["red apple", "wooden chair"]), Pretrained(tiny)
    encoder = Pretrained(prompted, EmbeddingCache(tmp_path / "cache", keeps_embeddings=False), backend)
    embeddings = encoder.encode_items(items.texts)
    classifiers = Classifiers(embeddings, np.ones(2))
    model = Emmett(encoder, classifiers, embeddings, Combine(0.5, 0.1), items, np.arange(2), neighbours=1)
    model.save(tmp_path / "model")
    loaded = Emmett.load(tmp_path / "model", cache=encoder.cache)
    with Catalog.create(tmp_path / "catalog", loaded) as catalog:
        catalog.add([NewItem("new", "old table")])
        catalog.click("new", "green pear")
        [[item]] = catalog.store.fetch_all("SELECT embedding FROM items WHERE id = 'new'")
        [[query]] = catalog.store.fetch_all("SELECT embedding FROM clicks")
        for stored, text in ((item, ITEM + "old table"), (query, QUERY + "green pear")):
            np.testing.assert_allclose(decode_vector(stored), plain.encode([text])[0], atol=1e-4)
        by_text, by_vector = catalog.encode(["green pear", plain.encode([QUERY + "green pear"])[0]])
        np.testing.assert_allclose(by_text, by_vector, atol=1e-4)


@pytest.mark.parametrize("kind", ["pretrained", "adapted"])
def test_a_model_on_an_encoder_with_prompts(shop, prompted, kind, tmp_path):
    """One text at a time is encoded like all texts at once, whether or not the tokens are shared with the towers."""
    dataset, _ = split(shop, novel=0.1, test=0.2)
    options = {"base": str(prompted), "backend": "torch", "folds": 0, "adapter": {"epochs": 2}}
    model = Irene(encoder=kind, **options).fit(dataset)
    texts = list(dataset.items.texts)
    together, alone = model.encoder.encode_items(texts), model.encoder.encode_items(texts[:1])
    np.testing.assert_allclose(alone, together[:1], atol=1e-5)
    if kind == "pretrained":
        expected = Pretrained(prompted, prompts=Prompts()).encode([ITEM + texts[0]])
        np.testing.assert_allclose(alone, expected, atol=1e-5)
    model.save(tmp_path / "model")
    loaded = Emmett.load(tmp_path / "model")
    assert loaded.search(["fresh bread"])[0][0].id == model.search(["fresh bread"])[0][0].id
    given = Irene(encoder=kind, **options, prompts={"query": "a "})
    base = given.base_encoder(dataset)
    assert base.prompts == Prompts(query="a ")


def test_the_default_by_its_hub_name():
    assert find_base("sentence-transformers/all-MiniLM-L6-v2") == find_base("all-MiniLM-L6-v2")


def test_a_hub_name_is_found_among_downloads_and_never_downloaded(tiny, tmp_path, monkeypatch):
    stored = tmp_path / "hub" / "models--someone--tiny-bert"
    shutil.copytree(tiny, stored / "snapshots" / "abc")
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    encoder = Pretrained("someone/tiny-bert")
    assert encoder.folder == stored / "snapshots" / "abc"
    assert encoder.fingerprint == Pretrained(tiny).fingerprint
    with pytest.raises(ModelError, match="not on this machine") as error:
        Pretrained("someone/other")
    assert "hf download someone/other" in str(error.value)
    with pytest.raises(ModelError, match="Not a sentence-transformers folder"):
        Pretrained("no-such-folder")
