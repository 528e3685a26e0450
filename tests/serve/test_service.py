"""Batched searches and writes, alone and over HTTP."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fastapi.testclient import TestClient
from running_service import HOME, add

from metaxc.catalog.catalog_errors import ConflictError, NotFoundError
from metaxc.catalog.generation_checks import compute_recalls
from metaxc.catalog.records import AddResult, NewItem
from metaxc.serve.api_types import AddRequest, ClickRequest, SearchRequest, UpdateRequest
from metaxc.serve.app import make_app
from metaxc.serve.prometheus_metrics import Metrics
from metaxc.serve.request_queue import QueuedRequest
from metaxc.serve.search_batcher import SearchBatcher
from metaxc.serve.serve_settings import ServeSettings
from metaxc.serve.served_catalog import ServedCatalog
from metaxc.serve.write_batcher import (
    DeleteItem,
    UndoClick,
    UpdateItem,
    WriteBatcher,
    group_for_transactions,
)


def queued(*payloads):
    return [QueuedRequest(payload) for payload in payloads]


def lines(response):
    """The hits of each query."""
    return [answer.hits for answer in response.answers]


def new_metrics():
    return Metrics(lambda: None, dict)


def test_searches_in_one_batch_keep_their_own_k_and_filters(catalog):
    catalog.add([NewItem("new", "grey cat", ("pets",)), NewItem("other", "grey dog", ("pets", "big"))])
    asked = [
        SearchRequest(queries=["fresh bread", "cheap lemon"], k=3),
        SearchRequest(queries=["raw melon"], k=7, tags=["pets"]),
        SearchRequest(queries=["fresh bread", "raw melon"], k=9, exposure=0.8),
        SearchRequest(queries=["fresh bread"], k=9, exposure=-0.8),
        SearchRequest(queries=["fresh bread"], k=50),
        SearchRequest(queries=["dried plum"], k=2, tags=["pets", "big"]),
        SearchRequest(queries=["dried plum"], k=2, tags=["big", "pets"]),
        SearchRequest(queries=["fresh bread"], k=4, states=["novel"]),
        SearchRequest(queries=["sweet pear"], k=1, states=["observed", "novel"]),
    ]
    batcher = SearchBatcher(ServedCatalog(catalog), new_metrics(), recall_sample_rate=0)
    answers = batcher(queued(*asked))
    for one, answer in zip(asked, answers, strict=True):
        expected = [
            catalog.search([query], one.k, tags=one.tags, states=one.states, exposure=one.exposure)[0]
            for query in one.queries
        ]
        assert [[hit.id for hit in line] for line in lines(answer)] == [
            [hit.id for hit in line] for line in expected
        ]
        assert [hit.score for line in lines(answer) for hit in line] == pytest.approx(
            [hit.score for line in expected for hit in line], abs=1e-5
        )
    batcher.sample_queue.close()
    catalog.close()


def test_only_the_invalid_search_of_a_batch_fails(catalog):
    batcher = SearchBatcher(ServedCatalog(catalog), new_metrics(), recall_sample_rate=0)
    good, bad, also = batcher(
        queued(
            SearchRequest(queries=["fresh bread"], k=2),
            SearchRequest(queries=[""], k=2),
            SearchRequest(queries=["raw melon"], k=1),
        )
    )
    assert [len(line) for line in lines(good)] == [2]
    assert "query is empty" in str(bad)
    assert [len(line) for line in lines(also)] == [1]
    batcher.sample_queue.close()
    catalog.close()


def items(*names, text="grey cat"):
    return AddRequest(items=[{"id": name, "text": f"{text} {name}"} for name in names])


def test_adds_in_one_batch_share_a_transaction_and_each_gets_its_own_counts(catalog):
    catalog.add([NewItem("a", "grey cat a")])
    before = catalog.about().sequence
    answers = WriteBatcher(ServedCatalog(catalog), new_metrics())(
        queued(items("b", "c"), items("a", "d"), items("e"))
    )
    assert answers == [AddResult(2, 0), AddResult(1, 1), AddResult(1, 0)]
    assert catalog.about().sequence == before + 1
    assert {"b", "c", "d", "e"} <= {item.id for item in catalog.list(limit=500).items}
    catalog.close()


def test_only_the_invalid_writes_of_a_batch_fail_and_the_order_is_kept(catalog):
    answers = WriteBatcher(ServedCatalog(catalog), new_metrics())(
        queued(
            items("a"),
            items("b", "a", text="other"),  # conflicts with the first: adds neither b nor a
            items("c"),
            ClickRequest(item="c", query="fresh bread"),
            ClickRequest(item="none", query="fresh bread"),
            ClickRequest(item="c", query="cheap lemon"),
            UpdateItem("c", UpdateRequest(tags=["pets"])),
            DeleteItem("a"),
            DeleteItem("a"),
            DeleteItem("c"),
            items("a", text="again"),
        )
    )
    assert answers[0] == answers[2] == answers[10] == AddResult(1, 0)
    assert isinstance(answers[1], ConflictError)
    assert [answers[3].item, answers[5].item] == ["c", "c"]
    assert isinstance(answers[4], NotFoundError)
    assert (answers[6].clicks, answers[6].tags) == (2, ("pets",))
    assert (answers[7], answers[9]) == (1, 1)
    assert isinstance(answers[8], NotFoundError)
    assert "b" not in catalog
    assert "c" not in catalog
    assert catalog.get("a").text == "again a"
    catalog.close()


def test_operations_of_one_kind_on_different_items_share_a_transaction():
    asked = [
        items("a"),
        items("b"),
        items("a"),
        ClickRequest(item="a", query="q"),
        ClickRequest(item="a", query="q"),
        UndoClick(1),
        UndoClick(2),
        DeleteItem("a"),
    ]
    assert [len(group) for group in group_for_transactions(queued(*asked))] == [2, 1, 2, 1, 1, 1]
    assert [request.payload for group in group_for_transactions(queued(*asked)) for request in group] == asked
    assert list(group_for_transactions([])) == []


def test_concurrent_clients_each_get_their_own_results(catalog, shop):
    queries = shop.train.queries.texts[:40]
    expected = {
        query: [hit.id for hit in line]
        for query, line in zip(queries, catalog.search(queries, 5), strict=True)
    }
    with TestClient(make_app(catalog), base_url=HOME) as http, ThreadPoolExecutor(16) as pool:

        def ask(place):
            query, k = queries[place % len(queries)], 1 + place % 5
            answer = http.post("/v1/search", json={"queries": [query], "k": k}).json()["answers"][0]
            return query, k, [hit["id"] for hit in answer["hits"]]

        for query, k, found in pool.map(ask, range(120)):
            assert found == expected[query][:k]
        added = list(
            pool.map(lambda place: add(http, f"new{place}", f"grey cat {place}").status_code, range(30))
        )
    assert added == [200] * 30


def test_a_full_queue_returns_429_and_accepted_requests_are_answered(catalog, monkeypatch):
    entered, go_on = threading.Event(), threading.Event()
    add_for_real = catalog.add

    def slow(*arguments):
        entered.set()
        assert go_on.wait(30)
        return add_for_real(*arguments)

    with TestClient(make_app(catalog, ServeSettings(queues={"max_waiting": 2})), base_url=HOME) as http:
        monkeypatch.setattr(catalog, "add", slow)
        queue = http.app.state.service.queues["write"]
        with ThreadPoolExecutor(3) as pool:
            taken = [pool.submit(add, http, "first", "grey cat")]
            assert entered.wait(30)
            waiting = threading.Event()
            put = queue.put

            def counted(*args):
                request = put(*args)
                if len(queue) == 2:
                    waiting.set()
                return request

            monkeypatch.setattr(queue, "put", counted)
            taken += [pool.submit(add, http, f"w{place}", "grey cat") for place in range(2)]
            assert waiting.wait(30)
            refused = add(http, "late", "grey cat")
            unread = [http.post("/v1/items", content=b"no JSON"), http.delete("/v1/items/unknown")]
            search = http.post("/v1/search", json={"queries": ["grey cat"]})
            unknown = http.get("/v1/items/unknown")
            go_on.set()
        assert refused.status_code == 429
        assert [one.status_code for one in unread] == [
            429,
            429,
        ]  # before their body or their item is looked at
        assert (search.status_code, unknown.status_code) == (200, 404)  # other queues accept requests
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["expected"] == "at most 2"
        assert [one.result().status_code for one in taken] == [200] * 3
        assert http.get("/v1/items/late").status_code == 404
        assert http.get("/v1/items/w1").status_code == 200


def test_the_recall_of_a_query_is_the_share_of_its_exact_results_that_were_found():
    found = np.array([[1, 2, 9, -1], [4, 5, 6, 7], [-1, -1, -1, -1]])
    exact = np.array([[1, 2, 3, -1], [4, 5, 6, 7], [-1, -1, -1, -1]])
    assert compute_recalls(found, exact) == pytest.approx([2 / 3, 1])


def test_a_search_by_an_item_s_own_text_leaves_it_out_where_queries_are_items(catalog, monkeypatch):
    batcher = SearchBatcher(ServedCatalog(catalog), new_metrics(), recall_sample_rate=0)
    asked = [
        SearchRequest(queries=["fresh bread", "Small Cat"], k=80),
        SearchRequest(queries=["old dog"], k=3),
    ]
    before, _ = batcher(queued(*asked))
    assert "small cat" in [hit.text for hit in before.answers[1].hits]
    monkeypatch.setattr(catalog.model, "exclude_self", True)
    first, second = batcher(queued(*asked))
    assert first.answers[0] == before.answers[0]
    assert [hit.text for hit in first.answers[1].hits] == [
        hit.text for hit in before.answers[1].hits if hit.text != "small cat"
    ]
    assert len(second.answers[0].hits) == 3
    assert "old dog" not in [hit.text for hit in second.answers[0].hits]
    batcher.sample_queue.close()
