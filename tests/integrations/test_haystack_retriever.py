"""Haystack's own interface on a running service."""

import pytest

pytest.importorskip("haystack", reason="needs the extra haystack: make test-integrations")

from haystack import Pipeline
from haystack.utils import Secret

from metaxc.integrations.haystack_retriever import MetaxcRetriever

QUERY = "fresh lemon"


def found(documents):
    return [(document.id, document.score) for document in documents]


@pytest.fixture
def secret(token, monkeypatch):
    monkeypatch.setenv("METAXC_READ_TOKEN", token)
    return Secret.from_env_var("METAXC_READ_TOKEN")


def test_run_in_a_pipeline_finds_what_the_service_finds(service, secret, expect):
    pipeline = Pipeline()
    pipeline.add_component("retriever", MetaxcRetriever(service, secret, top_k=4))
    documents = pipeline.run({"retriever": {"query": QUERY}})["retriever"]["documents"]
    assert found(documents) == expect(QUERY, k=4)
    asked = {"query": QUERY, "tags": ["fruit", "sour"], "states": ["novel"], "exposure": 7.0, "top_k": 2}
    (document,) = pipeline.run({"retriever": asked})["retriever"]["documents"]
    assert (document.id, document.content, document.score > 5) == ("a-plum", "old plum", True)
    assert document.meta == {
        "tags": ["fruit", "sour"],
        "state": "novel",
        "fields": {"price": 5, "brand": "x"},
    }
    asked = {"query": QUERY, "filter": {"field": "price", "lt": 4}}
    (document,) = pipeline.run({"retriever": asked})["retriever"]["documents"]
    assert document.id == "a-pear"


def test_a_saved_pipeline_has_the_settings_and_not_the_token(service, secret, token, expect):
    pipeline = Pipeline()
    cheap = {"field": "price", "lt": 4}
    made = MetaxcRetriever(service, secret, 3, ["fruit"], ["novel"], exposure=7.0, filter=cheap)
    pipeline.add_component("retriever", made)
    saved = pipeline.dumps()
    assert token not in saved
    again = Pipeline.loads(saved, allowed_modules=[MetaxcRetriever.__module__])
    documents = again.run({"retriever": {"query": QUERY}})["retriever"]["documents"]
    wanted = {"k": 3, "tags": ["fruit"], "states": ["novel"], "filter": cheap, "exposure": 7.0}
    assert found(documents) == expect(QUERY, **wanted)
    assert [document.id for document in documents] == ["a-pear"]
