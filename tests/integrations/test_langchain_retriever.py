"""LangChain's own interface on a running service."""

import asyncio

import pytest

pytest.importorskip("langchain_core", reason="needs the extra langchain: make test-integrations")

from langchain_core.runnables import RunnableLambda
from pydantic import ValidationError

from metaxc.errors import DataError
from metaxc.integrations.langchain_retriever import MetaxcRetriever
from metaxc.serve.http_errors import UnauthorizedError

QUERY = "fresh lemon"


@pytest.fixture
def retriever(service, token):
    made = MetaxcRetriever(url=service, token=token, k=4)
    yield made
    made.close()


def found(documents):
    return [(document.id, document.metadata["score"]) for document in documents]


def test_invoke_finds_what_the_service_finds(retriever, expect):
    documents = retriever.invoke(QUERY)
    assert found(documents) == expect(QUERY, k=4)
    assert len(documents) == 4


def test_arguments_of_a_call_replace_those_of_the_retriever(retriever, expect):
    (document,) = retriever.invoke(QUERY, tags=["fruit", "sour"])
    assert (document.id, document.page_content) == ("a-plum", "old plum")
    assert document.metadata["tags"] == ["fruit", "sour"]
    assert document.metadata["state"] == "novel"
    assert document.metadata["fields"] == {"price": 5, "brand": "x"}
    assert [one.id for one in retriever.invoke(QUERY, filter={"field": "price", "lt": 4})] == ["a-pear"]
    exposed = retriever.invoke(QUERY, k=2, states=["novel"], exposure=7.0)
    assert found(exposed) == expect(QUERY, k=2, states=["novel"], exposure=7.0)
    assert exposed[0].metadata["score"] > 5


def test_settings_of_the_retriever_are_used(service, token, expect):
    fruit = MetaxcRetriever(url=service, token=token, tags=("fruit",), states=("novel",), exposure=7.0)
    assert found(fruit.invoke(QUERY)) == expect(QUERY, tags=["fruit"], states=["novel"], exposure=7.0)
    assert len(fruit.invoke(QUERY)) == 2
    assert token not in repr(fruit)
    fruit.close()
    cheap = MetaxcRetriever(url=service, token=token, filter={"field": "price", "lt": 4})
    assert [document.id for document in cheap.invoke(QUERY)] == ["a-pear"]
    assert [document.id for document in cheap.invoke(QUERY, filter={"field": "price", "gt": 4})] == ["a-plum"]
    with pytest.raises(DataError, match="filter"):
        cheap.invoke(QUERY, filter={"price": 4})
    cheap.close()


def test_it_is_a_runnable_synchronous_and_not(retriever):
    chain = retriever | RunnableLambda(lambda documents: [document.id for document in documents])
    wanted = [document.id for document in retriever.invoke(QUERY)]
    assert chain.invoke(QUERY) == wanted
    assert asyncio.run(chain.ainvoke(QUERY)) == wanted


def test_errors_are_those_of_the_service(service):
    with pytest.raises(UnauthorizedError):
        MetaxcRetriever(url=service).invoke(QUERY)
    with pytest.raises(ValidationError):
        MetaxcRetriever(url=service, top_k=3)
