"""Who may ask, and how much."""

import json
import threading

import pytest
from fastapi.testclient import TestClient
from served import HOME, add

from metaxc.errors import ConfigError
from metaxc.serve.app import make_app
from metaxc.serve.middleware import only_reads, same
from metaxc.serve.serve_settings import ServeSettings

READ, WRITE = "r" * 20, "w" * 20


def served(catalog, **limits):
    return TestClient(make_app(catalog, ServeSettings(**limits)), base_url=HOME)


def chunks(size, step=1000):
    yield b'{"items": [{"id": "a", "text": "'
    for _ in range(size // step):
        yield b"x" * step
    yield b'"}]}'


def test_a_large_body_is_413_announced_or_in_chunks(catalog):
    with served(catalog, most_body=5000, most_text=20_000) as http:
        announced = add(http, "a", "x" * 6000)
        chunked = http.post("/v1/items", content=chunks(6000), headers={"content-type": "application/json"})
        for answer in (announced, chunked):
            assert answer.status_code == 413
            assert answer.json()["expected"] == "at most 5,000 bytes"
        assert "transfer-encoding" in chunked.request.headers
        small = http.post("/v1/items", content=chunks(3000), headers={"content-type": "application/json"})
        assert small.status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("/v1/search", {"queries": ["a"] * 5}, "queries"),
        ("/v1/search", {"queries": []}, "queries"),
        ("/v1/search", {"queries": ["a"], "k": 8}, "k"),
        ("/v1/search", {"queries": ["a"], "k": 0}, "k"),
        ("/v1/search", {"queries": ["a"], "k": True}, "k"),
        ("/v1/search", {"queries": ["a" * 31]}, "queries.0"),
        ("/v1/search", {"queries": [" \n\t"]}, "queries.0"),
        ("/v1/search", {"queries": ["\x94\u200b"]}, "queries.0"),
        ("/v1/search", {"queries": ["a\0b"]}, "queries.0"),
        ("/v1/search", {"queries": ["a"], "tags": ["b", "c", "d", "e"]}, "tags"),
        ("/v1/search", {"queries": ["a"], "states": ["old"]}, "states.0"),
        ("/v1/search", {"queries": ["a"], "url": "http://elsewhere"}, "url"),
        ("/v1/items", {"items": [{"id": "a", "text": "b"}] * 5}, "items"),
        ("/v1/items", {"items": [{"id": "", "text": "b"}]}, "items.0.id"),
        ("/v1/items", {"items": [{"id": "a" * 201, "text": "b"}]}, "items.0.id"),
        ("/v1/items", {"items": [{"id": "a\nb", "text": "b"}]}, "items.0.id"),
        ("/v1/items", {"items": [{"id": "..", "text": "b"}]}, "items.0.id"),
        ("/v1/items", {"items": [{"id": "a", "text": "b", "tags": ["c\x7f"]}]}, "items.0.tags.0"),
        ("/v1/clicks", {"item": "a"}, "query"),
        ("/v1/preview", {"text": "a", "revealed": ["b"] * 4}, "revealed"),
        ("/v1/represent", {"texts": "a"}, "texts"),
    ],
)
def test_what_is_out_of_bounds_is_422_and_says_which_part(catalog, path, body, place):
    with served(catalog, most_batch=4, most_k=7, most_text=30, most_tags=3, most_revealed=3) as http:
        answer = http.post(path, json=body)
        assert answer.status_code == 422
        assert answer.json()["what"].startswith(f"body.{place} is not right")
        assert answer.json()["expected"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"queries": ["\\ud800"]}',
        b'{"queries": ["\\ud800\\ud800"], "tags": ["\\udfff"]}',
        b"\xff\xfe",
        b"{",
        b"[" * 100_000,
        b'{"queries": ["a"], "k": ' + b"9" * 5000 + b"}",
        b'{"queries": ["a"], "k": NaN}',
        b"",
        b"null",
    ],
)
def test_a_body_that_is_no_json_of_texts_is_422(http, body):
    answer = http.post("/v1/search", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json().keys() == {"what", "got", "expected", "fix"}


def test_a_misspelt_filter_does_not_answer_with_everything(http):
    refused = http.get("/v1/items", params={"tags": "pets"})
    assert refused.status_code == 422
    assert refused.json()["got"] == "'tags'"
    assert refused.json()["expected"] == "after, limit, state, tag"
    assert http.delete("/v1/items/any?force=1").status_code == 422


def test_a_form_of_a_foreign_page_cannot_write(http):
    body = json.dumps({"items": [{"id": "new", "text": "grey cat"}]})
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        assert http.post("/v1/items", content=body, headers={"content-type": kind}).status_code == 422
    assert http.get("/v1/items/new").status_code == 404


def test_without_tokens_only_names_of_this_machine_are_answered(catalog):
    with served(catalog, names=("shop.local",)) as http:
        for name in ("127.0.0.1:8765", "localhost", "[::1]:8765", "shop.local:80"):
            assert http.get("/v1/about", headers={"host": name}).status_code == 200
        for name in ("evil.example", "127.0.0.1.evil.example", "shop.local.evil.example:8765", ""):
            assert http.get("/v1/about", headers={"host": name}).status_code == 403
        assert http.get("/healthz", headers={"host": "10.0.0.7"}).status_code == 200


def test_reads_want_a_token_and_writes_the_write_token(catalog):
    with served(catalog, host="0.0.0.0", read_token=READ, write_token=WRITE) as http:

        def statuses(token):
            headers = {"authorization": f"Bearer {token}".encode()} if token else {}
            item = {"items": [{"id": "new", "text": "grey cat"}]}
            return [
                http.get("/v1/about", headers=headers).status_code,
                http.get("/metrics", headers=headers).status_code,
                http.post("/v1/search", json={"queries": ["a"]}, headers=headers).status_code,
                http.post("/v1/items", json=item, headers=headers).status_code,
                http.delete("/v1/items/new", headers=headers).status_code,
            ]

        assert statuses(None) == statuses("x" * 20) == statuses("ü" * 20) == [401] * 5
        assert statuses(READ) == [200, 200, 200, 403, 403]
        assert statuses(WRITE) == [200] * 5
        assert http.get("/v1/about").headers["www-authenticate"] == "Bearer"
        assert (
            http.post("/v1/items", content=b"{", headers={}).status_code == 401
        )  # before the body is looked at
        assert http.get("/v1/about", headers={"authorization": f"Basic {WRITE}"}).status_code == 401
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert http.get(path).status_code == 200
        assert http.get("/").status_code != 401
        assert http.get("/static/app.js").status_code != 401
        assert http.get("/nowhere").status_code == 401


def test_a_write_token_alone_reads_too_and_a_read_token_alone_never_writes(catalog, model, tmp_path):
    with served(catalog, write_token=WRITE) as http:
        assert http.get("/v1/about").status_code == 401
        assert http.get("/v1/about", headers={"authorization": f"bearer {WRITE}"}).status_code == 200
    assert not same(WRITE, None)
    assert only_reads("POST", "/v1/search")
    assert not only_reads("POST", "/v1/items")


def test_more_requests_than_the_bound_are_429(catalog, monkeypatch):
    entered, go_on = threading.Event(), threading.Event()
    about = catalog.about

    def slow():
        entered.set()
        assert go_on.wait(30)
        return about()

    with served(catalog, most_requests=1) as http:
        monkeypatch.setattr(catalog, "about", slow)
        statuses = []
        first = threading.Thread(target=lambda: statuses.append(http.get("/v1/about").status_code))
        first.start()
        assert entered.wait(30)
        refused = http.get("/v1/items/any")
        probe = http.get("/healthz")
        go_on.set()
        first.join()
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["expected"] == "at most 1"
    assert (statuses, probe.status_code) == ([200], 200)


def test_another_address_is_refused_without_a_token(monkeypatch):
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.org"):
        with pytest.raises(ConfigError, match="METAXC_WRITE_TOKEN"):
            ServeSettings(host=host)
        assert ServeSettings(host=host, write_token=WRITE).guarded
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        assert not ServeSettings(host=host).guarded
    monkeypatch.setenv("METAXC_WRITE_TOKEN", WRITE)
    monkeypatch.setenv("METAXC_READ_TOKEN", "")
    settings = ServeSettings.of_environment(host="0.0.0.0")
    assert settings.write_token.get_secret_value() == WRITE
    assert settings.read_token is None
    assert WRITE not in repr(settings)


@pytest.mark.parametrize("token", ["", "short", "ü" * 20, "with spaces in between", "x" * 20 + "\n"])
def test_a_token_that_guards_nothing_is_refused(token):
    with pytest.raises(ConfigError, match="not fit"):
        ServeSettings(write_token=token)
    with pytest.raises(ConfigError, match="the same"):
        ServeSettings(read_token=READ, write_token=READ)
