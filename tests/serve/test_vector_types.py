"""Vectors over HTTP: searched, added, clicked and returned; what does not fit the model is refused by name."""

import numpy as np
import pytest
from running_service import running

from metaxc.catalog import Catalog, NewClick, NewItem
from metaxc.errors import DataError
from metaxc.serve.client import Client
from metaxc.serve.http_errors import BusyError
from metaxc.serve.serve_settings import ServeSettings

TEXT, QUERY = "grey cat", "fresh bread"


@pytest.fixture
def item(model):
    return model.encoder.encode_items([TEXT])[0]


@pytest.fixture
def query(model):
    return model.encoder.encode_queries([QUERY])[0]


def search(http, *queries, **more):
    return http.post("/v1/search", json={"queries": list(queries), "k": 5, **more})


def test_a_search_by_vector_is_one_by_text(http, query):
    given = [QUERY, {"vector": query.tolist()}, {"vector": (5 * query).tolist(), "text": "a name"}]
    answers = search(http, *given, exposure=0.3).json()["answers"]
    assert [answer["query"] for answer in answers] == [QUERY, "", "a name"]
    for answer in answers[1:]:
        assert [hit["id"] for hit in answer["hits"]] == [hit["id"] for hit in answers[0]["hits"]]
        assert answer["hits"][0]["score"] == pytest.approx(answers[0]["hits"][0]["score"], abs=1e-5)


def test_what_represent_returns_for_a_query_can_be_searched_with(http, query, catalog):
    body = {"queries": [QUERY, {"vector": query.tolist()}], "exposure": 0.7, "texts": [TEXT]}
    found = http.post("/v1/represent", json=body).json()
    assert np.allclose(found["queries"], catalog.encode([QUERY, query], 0.7), atol=1e-6)
    assert np.allclose(found["vectors"], catalog.represent([TEXT]), atol=1e-6)
    assert found["queries"][0][-1] == pytest.approx(catalog.model.encode_queries([QUERY], 0.7)[0, -1])
    by_vector = search(http, {"vector": found["queries"][0]}).json()["answers"][0]["hits"]
    by_text = search(http, QUERY, exposure=0.7).json()["answers"][0]["hits"]
    assert [hit["id"] for hit in by_vector] == [hit["id"] for hit in by_text]
    for one, other in zip(by_vector, by_text, strict=True):  # queries of one batch are rounded differently
        assert one["score"] == pytest.approx(other["score"], abs=1e-5)
    assert search(http, {"vector": found["queries"][0]}, exposure=0.7).status_code == 422


def test_items_and_queries_of_a_large_request_come_back_in_order(catalog, item):
    """The request is cut into slices of a few texts each, items and queries mixed."""
    settings = ServeSettings(queues={"slice_tokens": 16, "slice_texts": 2})
    words = ["cat", "a much longer text about a cat", "dog", "horse", "old dog", "wild goat"]
    with running(catalog, settings) as url, Client(url) as client:
        given = [*words, item]
        assert np.allclose(client.represent(given), catalog.represent(given), atol=1e-5)
        assert np.allclose(client.represent_queries(given, 0.2), catalog.encode(given, 0.2), atol=1e-5)
        body = {"texts": given[:-1], "queries": words[::-1]}
        both = client._http.post("/v1/represent", json=body).json()
        assert np.allclose(both["vectors"], catalog.represent(words), atol=1e-5)
        assert np.allclose(both["queries"], catalog.encode(words[::-1]), atol=1e-5)


def test_items_and_clicks_by_vector(catalog, model, item, query):
    with running(catalog) as url, Client(url) as client:
        client.add(
            [NewItem("by text", TEXT), NewItem("beside", TEXT, vector=item), {"id": "alone", "vector": item}]
        )
        assert client.get("alone").text == "alone"
        client.clicks([("by text", QUERY), NewClick("beside", QUERY, vector=query)])
        client.click("alone", "a name", query)
        vectors = [catalog._row(id).vector for id in ("by text", "beside", "alone")]
        assert np.allclose(vectors[1], vectors[0], atol=1e-5)
        assert np.allclose(vectors[2], vectors[0], atol=1e-5)
        assert client.add([{"id": "alone", "vector": item}]).unchanged == 1
        other = model.encoder.encode_items(["wild goat"])[0]
        client.update("alone", vector=other)
        assert np.allclose(catalog._row("alone").embedding, other, atol=1e-6)
        found = client.search(np.stack([query, query]), 3)
        expected = client.search([QUERY], 3).answers[0].hits
        assert [[hit.id for hit in answer.hits] for answer in found.answers] == 2 * [
            [hit.id for hit in expected]
        ]


def test_a_vector_that_does_not_fit_the_model_is_refused(http, catalog):
    dim = catalog.model.encoder.dim
    for vector, message in (
        ([1.0], "wrong length"),
        ([0.0] * dim, "no direction"),
        ([1e39] * dim, "float32"),
    ):
        sent = {"vector": vector}
        for response in (
            search(http, QUERY, sent),
            http.post("/v1/represent", json={"texts": [sent]}),
            http.post("/v1/represent", json={"queries": [sent]}),
            http.post("/v1/items", json={"items": [{"id": "x", **sent}]}),
            http.post("/v1/clicks", json={"item": "cat-small", "query": "x", **sent}),
            http.post("/v1/clicks", json={"clicks": [{"item": "cat-small", "query": "x", **sent}]}),
            http.patch("/v1/items/cat-small", json=sent),
        ):
            assert response.status_code == 422
            assert message in response.json()["what"]
    assert "x" not in catalog


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/search", {"queries": [{"text": "no vector"}]}),
        ("/v1/search", {"queries": [{"vector": []}]}),
        ("/v1/search", {"queries": [{"vector": ["a"]}]}),
        ("/v1/search", {"queries": [{"vector": [1.0], "colour": "red"}]}),
        ("/v1/search", {"queries": [7]}),
        ("/v1/items", {"items": [{"id": "a"}]}),
        ("/v1/items", {"items": [{"id": "a", "vector": None}]}),
        ("/v1/represent", {}),
        ("/v1/represent", {"texts": [], "queries": []}),
    ],
)
def test_what_is_no_vector_is_a_validation_error(http, path, body):
    response = http.post(path, json=body)
    assert response.status_code == 422
    assert "(" not in response.json()["what"].split(" is invalid")[0], "kinds of entries are no fields"


def test_any_number_of_items_is_sent_in_batches(catalog, item, monkeypatch):
    """Batches that are too large for the service are halved; a busy service is asked again."""
    settings = ServeSettings(limits={"max_body_bytes": 20_000})
    with running(catalog, settings) as url, Client(url) as client:
        items = [NewItem(f"new {n}", TEXT, vector=item if n % 2 else None) for n in range(60)]
        sizes, busy = [], [2]
        send = Client._request

        def request(self, record, method, path, body=None, params=None):
            if busy[0]:
                busy[0] -= 1
                raise BusyError("busy", retry_after=0.0)
            result = send(self, record, method, path, body, params)
            sizes.append(len(body["items"]))
            return result

        monkeypatch.setattr(Client, "_request", request)
        seen = []
        result = client.add_all(iter(items), batch=40, progress=seen.append)
        assert (result.added, result.unchanged) == (60, 0)
        assert sum(sizes) == 60
        assert max(sizes) < 40, "a batch of 40 has more than 20,000 bytes"
        assert [one.added for one in seen] == list(np.cumsum(sizes))
        again = client.add_all(items[:50], batch=10)
        assert (again.added, again.unchanged) == (0, 50)
        busy[0] = 5
        with pytest.raises(BusyError):
            client.add_all(items[:1], patience=-1.0)


def test_a_model_of_your_own_vectors_says_what_it_needs(world, tmp_path):
    from world_model import build_model

    catalog = Catalog.create(tmp_path / "catalog", build_model(world, neighbours=4))
    vector = world.encoder.encode_queries(["t0"])[0]
    with running(catalog) as url, Client(url) as client:
        with pytest.raises(DataError, match=r"No vector for this query(.|\n)*pass the new query's vector"):
            client.search(["unheard of"])
        assert client.search([vector], 4).answers[0].hits == client.search(["t0"], 4).answers[0].hits
