"""LlamaIndex' own interface on a running service."""

import asyncio

import pytest

pytest.importorskip("llama_index.core", reason="needs the extra llama-index: make test-integrations")

from llama_index.core.schema import QueryBundle

from metaxc.integrations.llama_index_retriever import MetaxcRetriever

QUERY = "fresh lemon"


def found(nodes):
    return [(node.node_id, node.score) for node in nodes]


def test_retrieve_finds_what_the_service_finds(service, token, expect):
    retriever = MetaxcRetriever(service, token, k=4)
    nodes = retriever.retrieve(QUERY)
    assert found(nodes) == expect(QUERY, k=4)
    assert found(retriever.retrieve(QueryBundle(QUERY))) == expect(QUERY, k=4)
    assert found(asyncio.run(retriever.aretrieve(QUERY))) == expect(QUERY, k=4)
    retriever.close()


def test_tags_states_filter_and_exposure_are_used(service, token, expect):
    (node,) = MetaxcRetriever(service, token, tags=["fruit", "sour"]).retrieve(QUERY)
    assert (node.node_id, node.text) == ("a-plum", "old plum")
    assert node.metadata == {
        "tags": ["fruit", "sour"],
        "state": "novel",
        "fields": {"price": 5, "brand": "x"},
    }
    (cheap,) = MetaxcRetriever(service, token, filter={"field": "price", "lt": 4}).retrieve(QUERY)
    assert cheap.node_id == "a-pear"
    exposed = MetaxcRetriever(service, token, k=3, states=["novel"], exposure=7.0).retrieve(QUERY)
    assert found(exposed) == expect(QUERY, k=3, states=["novel"], exposure=7.0)
    assert exposed[0].score > 5
