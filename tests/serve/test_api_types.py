"""The limits and rules of request bodies."""

import pytest
from fastapi.testclient import TestClient
from running_service import HOME, add

from metaxc.catalog import Catalog, NewItem
from metaxc.errors import DataError
from metaxc.serve.app import make_app
from metaxc.serve.serve_settings import ServeSettings

LIMITS = {
    "max_batch": 4,
    "max_k": 7,
    "max_offset": 50,
    "max_text_length": 30,
    "max_tags": 3,
    "max_preview_edits": 3,
}


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
        ("/v1/search", {"queries": ["a"], "exposure": 100.5}, "exposure"),
        ("/v1/search", {"queries": ["a"], "exposure": "1"}, "exposure"),
        ("/v1/search", {"queries": ["a"], "exposure": True}, "exposure"),
        ("/v1/search", {"queries": ["a"], "url": "http://elsewhere"}, "url"),
        ("/v1/search", {"queries": ["a"], "offset": -1}, "offset"),
        ("/v1/search", {"queries": ["a"], "offset": 51}, "offset"),
        ("/v1/search", {"queries": ["a"], "filter": {"price": 1}}, "filter"),
        ("/v1/search", {"queries": ["a"], "filter": {"field": "p", "below": 1}}, "filter"),
        ("/v1/search", {"queries": ["a"], "filter": {"and": [{"field": "p", "lt": "1"}]}}, "filter.and.0.lt"),
        ("/v1/search", {"queries": ["a"], "filter": {"not": {"field": "p", "eq": None}}}, "filter.not.eq"),
        ("/v1/search", {"queries": ["a"], "filter": {"or": [{"tag": "t"}] * 21}}, "filter.or"),
        ("/v1/items", {"items": [{"id": "a", "text": "b", "fields": {"p": {}}}]}, "items.0.fields"),
        ("/v1/items", {"items": [{"id": "a", "text": "b", "fields": {"p": 1e300}}]}, "items.0.fields"),
        ("/v1/items", {"items": [{"id": "a", "text": "b", "fields": {"": 1}}]}, "items.0.fields"),
        ("/v1/items", {"items": [{"id": "a", "text": "b"}] * 5}, "items"),
        ("/v1/items", {"items": [{"id": "", "text": "b"}]}, "items.0.id"),
        ("/v1/items", {"items": [{"id": "a" * 501, "text": "b"}]}, "items.0.id"),
        ("/v1/items", {"items": [{"id": "a\nb", "text": "b"}]}, "items.0.id"),
        ("/v1/items", {"items": [{"id": "..", "text": "b"}]}, "items.0.id"),
        ("/v1/items", {"items": [{"id": "a", "text": "b", "tags": ["c\x7f"]}]}, "items.0.tags.0"),
        ("/v1/clicks", {"item": "a"}, "query"),
        ("/v1/preview", {"text": "a", "revealed": ["b"] * 4}, "revealed"),
        ("/v1/represent", {"texts": "a"}, "texts"),
    ],
)
def test_an_invalid_field_is_422_and_named(catalog, path, body, place):
    with TestClient(make_app(catalog, ServeSettings(limits=LIMITS)), base_url=HOME) as http:
        answer = http.post(path, json=body)
        assert answer.status_code == 422
        assert answer.json()["what"].startswith(f"body.{place} is invalid")
        assert answer.json()["expected"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"queries": ["\\ud800"]}',
        b'{"queries": ["\\ud800\\ud800"], "tags": ["\\udfff"]}',
        b"\xff\xfe",
        b"{",
        b"[" * 100_000,
        *(
            b'{"queries": ["a"], "filter": ' + b'{"not": ' * n + b"1" + b"}" * (n + 1)
            for n in (20, 300, 800, 940)
        ),
        b'{"queries": ["a"], "k": ' + b"9" * 5000 + b"}",
        b'{"queries": ["a"], "k": NaN}',
        b'{"queries": ["a"], "exposure": NaN}',
        b'{"queries": ["a"], "exposure": -Infinity}',
        b'{"queries": ["a"], "exposure": 1e999}',
        b"",
        b"null",
    ],
)
def test_a_body_that_is_not_json_of_valid_texts_is_422(http, body):
    answer = http.post("/v1/search", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json().keys() == {"what", "got", "expected", "fix"}


@pytest.mark.parametrize(
    ("id", "text", "tags"),
    [
        ("a\x85b", "text", []),
        ("..", "text", []),
        ("\u200b", "text", []),
        ("a", "\u200b\x94", []),
        ("a", "nul\0", []),
        ("a", "text", ["b\nc"]),
        ("a", "text", ["\u2060"]),
    ],
)
def test_the_service_and_the_catalog_reject_the_same_items(http, catalog: Catalog, id, text, tags):
    assert add(http, id, text, tags=tags).status_code == 422
    with pytest.raises(DataError):
        catalog.add([NewItem(id, text, tuple(tags))])


@pytest.mark.parametrize(("id", "text", "tags"), [("a b", "{x}\n\t", ["ü"]), ("...", " x ", ["#"])])
def test_the_service_and_the_catalog_accept_the_same_items(http, catalog: Catalog, id, text, tags):
    assert add(http, id, text, tags=tags).status_code == 200
    assert catalog.add([NewItem(id, text, tuple(tags))]).unchanged == 1
