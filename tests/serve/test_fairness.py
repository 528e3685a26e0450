"""Large requests in slices, over HTTP: the same results, and nobody waits for the whole of them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient
from running_service import HOME, add

from metaxc.catalog import NewItem
from metaxc.serve.app import make_app
from metaxc.serve.serve_settings import ServeSettings

SMALL_SLICES = ServeSettings(queues={"slice_tokens": 12, "slice_texts": 4})
TEXTS = [("grey cat " * (1 + place % 5)) + f"number {place}" for place in range(30)]


@pytest.fixture
def sliced(catalog):
    """A service whose slices hold two or three short texts."""
    with TestClient(make_app(catalog, SMALL_SLICES), base_url=HOME) as client:
        yield client


class PausedEncoder:
    """Lets a given number of calls of an encoder pass, then holds the next one until it is released."""

    def __init__(self, encode, passing):
        self._encode, self._passing = encode, passing
        self.held, self.released, self.sizes = threading.Event(), threading.Event(), []

    def __call__(self, texts):
        self.sizes.append(len(texts))
        if len(self.sizes) == self._passing + 1:
            self.held.set()
            assert self.released.wait(30)
        return self._encode(texts)


@pytest.fixture
def pause(catalog, monkeypatch):
    """Replace a method of the catalog's encoder by a paused one."""

    def replace(method, passing=1):
        paused = PausedEncoder(getattr(catalog.model.encoder, method), passing)
        monkeypatch.setattr(catalog.model.encoder, method, paused)
        return paused

    return replace


def test_a_search_in_slices_gives_what_it_gives_in_one(sliced, catalog, pause):
    expected = catalog.search(TEXTS, 3, states=["observed"])
    encoder = pause("encode_queries", passing=1000)
    response = sliced.post("/v1/search", json={"queries": TEXTS, "k": 3, "states": ["observed"]}).json()
    assert max(encoder.sizes) <= 4
    assert sum(encoder.sizes) == len(TEXTS)
    assert [answer["query"] for answer in response["answers"]] == TEXTS
    assert [[hit["id"] for hit in answer["hits"]] for answer in response["answers"]] == [
        [hit.id for hit in line] for line in expected
    ]
    assert set(response["seconds"]) == {"queue", "encode", "search"}


def test_representations_and_previews_in_slices_give_what_they_give_in_one(sliced, catalog, pause):
    vectors, preview = catalog.represent(TEXTS), catalog.preview("grey cat", revealed=TEXTS)
    items, queries = pause("encode_items", passing=1000), pause("encode_queries", passing=1000)
    response = sliced.post("/v1/represent", json={"texts": TEXTS}).json()
    assert response["model"] == catalog.model.fingerprint
    for ours, theirs in zip(response["vectors"], vectors, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
    answer = sliced.post("/v1/preview", json={"text": "grey cat", "revealed": TEXTS}).json()
    voters = [neighbour["voter"] for neighbour in answer["explanation"]["neighbours"]]
    assert voters == [neighbour.voter for neighbour in preview.explanation.neighbours]
    assert answer["explanation"]["text_share"] == pytest.approx(preview.explanation.text_share, abs=1e-3)
    assert max(items.sizes + queries.sizes) <= 4


def test_a_large_add_is_all_or_none_and_skips_what_exists(sliced, catalog, pause):
    catalog.add([NewItem("n0", TEXTS[0])])
    encoder = pause("encode_items", passing=1000)
    items = [{"id": f"n{place}", "text": text} for place, text in enumerate(TEXTS)]
    before = catalog.sequence
    conflicting = [*items, {"id": "n0", "text": "other"}]
    assert sliced.post("/v1/items", json={"items": conflicting}).status_code == 409
    assert catalog.sequence == before
    encoder.sizes.clear()
    response = sliced.post("/v1/items", json={"items": items})
    assert response.json() == {"added": 29, "unchanged": 1}
    assert catalog.sequence == before + 1
    assert sum(encoder.sizes) == 29
    assert max(encoder.sizes) <= 4
    assert catalog.explain("n7").current
    assert sliced.post("/v1/items", json={"items": items}).json() == {"added": 0, "unchanged": 30}
    assert sum(encoder.sizes) == 29


def test_single_writes_go_between_the_slices_of_a_large_add(sliced, catalog, pause, monkeypatch):
    encoder = pause("encode_items")
    items = [{"id": f"n{place}", "text": text} for place, text in enumerate(TEXTS)]
    with ThreadPoolExecutor(3) as pool:
        large = pool.submit(sliced.post, "/v1/items", json={"items": items})
        assert encoder.held.wait(30)
        queue = sliced.app.state.service.queues["write"]
        put, in_line = queue.put, threading.Event()

        def put_and_tell(*arguments):
            request = put(*arguments)
            in_line.set()
            return request

        monkeypatch.setattr(queue, "put", put_and_tell)
        single = pool.submit(add, sliced, "single", "black dog")
        assert in_line.wait(30)
        encoder.released.set()
        assert single.result(30).status_code == 200
        assert large.result(30).json()["added"] == 30
    rows = catalog.store.fetch_all(
        "SELECT sequence FROM items WHERE id IN ('single', 'n0') ORDER BY id = 'n0'"
    )
    assert rows[0] < rows[1]


def test_cheap_reads_do_not_wait_for_an_encoder(sliced, pause):
    encoder = pause("encode_items")
    with ThreadPoolExecutor(3) as pool:
        large = [pool.submit(sliced.post, "/v1/represent", json={"texts": TEXTS}) for _ in range(3)]
        assert encoder.held.wait(30)
        assert sliced.get("/v1/items").status_code == 200
        assert sliced.get("/v1/about").status_code == 200
        encoder.released.set()
        assert {one.result(30).status_code for one in large} == {200}


def test_a_client_says_how_long_it_waits(http):
    ask = {"url": "/v1/search", "json": {"queries": ["grey cat"]}}
    assert http.post(**ask, headers={"Prefer": "respond-async, wait=20"}).status_code == 200
    refused = http.post(**ask, headers={"Prefer": "wait=0"})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert "Prefer: wait=SECONDS" in refused.json()["expected"]
    wrong = http.post(**ask, headers={"Prefer": "wait=soon"})
    assert wrong.status_code == 422
    assert "wait=soon" in wrong.json()["got"]
    late = http.post(
        "/v1/items", json={"items": [{"id": "a", "text": "b"}]}, headers={"Prefer": "wait=0.000001"}
    )
    assert late.status_code == 503
    assert http.get("/v1/items/a").status_code == 404


def test_a_large_list_of_clicks_is_encoded_in_slices_and_recorded_at_once(sliced, catalog, pause):
    catalog.add([NewItem("n0", "grey cat")])
    encoder, sequence = pause("encode_queries", passing=1000), catalog.sequence
    response = sliced.post("/v1/clicks", json={"clicks": [{"item": "n0", "query": text} for text in TEXTS]})
    assert [click["query"] for click in response.json()["clicks"]] == TEXTS
    assert max(encoder.sizes) <= 4
    assert sum(encoder.sizes) == len(TEXTS)
    assert catalog.get("n0").clicks == len(TEXTS)
    assert catalog.sequence == sequence + 1
