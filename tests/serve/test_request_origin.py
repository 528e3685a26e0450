"""Other web pages in a user's browser cannot use the service, whatever the web framework allows."""

import json

import pytest
from running_service import add

ITEM = json.dumps({"items": [{"id": "new", "text": "grey cat"}]})
JSON = {"content-type": "application/json"}


def write(http, **headers):
    return http.post("/v1/items", content=ITEM, headers={**JSON, **headers})


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
def test_a_body_has_to_be_announced_as_json(http, kind):
    refused = http.post("/v1/items", content=ITEM, headers={"content-type": kind} if kind else {})
    assert refused.status_code == 415
    assert refused.json()["expected"] == "Content-Type: application/json"
    assert http.get("/v1/items/new").status_code == 404
    chunked = http.post("/v1/items", content=iter([ITEM.encode()]), headers={"content-type": "text/plain"})
    assert chunked.status_code == 415
    assert write(http, **{"content-type": "Application/JSON; charset=utf-8"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8766"},
        {"origin": "http://127.0.0.1:8765.evil.example"},
        {"origin": "http://["},
        {"origin": "https://evil.example", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_what_changes_or_costs_is_refused_to_other_pages(http, headers):
    refused = write(http, **headers)
    assert refused.status_code == 403
    assert refused.json()["what"] == "Another web page may not use this service"
    assert http.delete("/v1/items/any", headers=headers).status_code == 403
    assert http.post("/v1/search", json={"queries": ["grey cat"]}, headers=headers).status_code == 403
    for path in ("/v1/about", "/v1/explain?item=any", "/metrics", "/nowhere"):
        assert http.get(path, headers=headers).status_code == 403
    for path in ("/", "/healthz", "/readyz", "/openapi.json"):
        assert http.get(path, headers=headers).status_code == 200
    assert http.get("/v1/items/new").status_code == 404


def test_the_own_page_and_programs_are_served(http):
    for headers in (
        {},
        {"origin": "http://127.0.0.1:8765", "sec-fetch-site": "same-origin"},
        {"origin": "https://localhost", "host": "localhost:443"},
        {"origin": "http://LOCALHOST:80", "host": "localhost"},
        {"sec-fetch-site": "none"},
    ):
        assert write(http, **headers).status_code == 200, headers


def test_a_page_on_an_allowed_host_is_served(catalog):
    from test_middleware import serve

    with serve(catalog, network={"allowed_hosts": ("shop.local",)}) as http:
        page = {"origin": "https://shop.local", "sec-fetch-site": "same-site"}
        assert write(http, **page).status_code == 200
        assert write(http, origin="https://shop.local.evil.example").status_code == 403
        assert add(http, "other", "grey dog").status_code == 200
