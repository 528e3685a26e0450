"""Route policies, access control and limits."""

import asyncio
import threading

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from running_service import HOME, add

from metaxc.serve.app import make_app
from metaxc.serve.bearer_tokens import is_same_token
from metaxc.serve.middleware import (
    PROBE,
    PUBLIC,
    READ,
    WRITE,
    AccessControl,
    RoutePolicy,
    RouteTable,
)
from metaxc.serve.serve_settings import ServeSettings

READ_TOKEN, WRITE_TOKEN = "r" * 20, "w" * 20


def serve(catalog, **settings):
    return TestClient(make_app(catalog, ServeSettings(**settings)), base_url=HOME)


def chunks(size, step=1000):
    yield b'{"items": [{"id": "a", "text": "'
    for _ in range(size // step):
        yield b"x" * step
    yield b'"}]}'


def test_a_large_body_is_413_whether_announced_or_chunked(catalog):
    with serve(catalog, limits={"max_body_bytes": 5000, "max_text_length": 20_000}) as http:
        announced = add(http, "a", "x" * 6000)
        chunked = http.post("/v1/items", content=chunks(6000), headers={"content-type": "application/json"})
        for answer in (announced, chunked):
            assert answer.status_code == 413
            assert answer.json()["expected"] == "at most 5,000 bytes"
        assert "transfer-encoding" in chunked.request.headers
        small = http.post("/v1/items", content=chunks(3000), headers={"content-type": "application/json"})
        assert small.status_code == 200


SAMPLE_REQUESTS = {
    ("GET", "/v1/about"): {},
    ("GET", "/v1/model"): {},
    ("POST", "/v1/items"): {"json": {"items": [{"id": "new", "text": "grey cat"}]}},
    ("GET", "/v1/items"): {},
    ("GET", "/v1/items/{id:path}"): {},
    ("PUT", "/v1/items/{id:path}"): {"json": {"tags": ["pets"]}},
    ("PATCH", "/v1/items/{id:path}"): {"json": {"add_tags": ["grey"]}},
    ("POST", "/v1/items/delete"): {"json": {"ids": ["dog-old"]}},
    ("POST", "/v1/clicks"): {"json": {"item": "new", "query": "fresh bread"}},
    ("DELETE", "/v1/clicks/{number}"): {},
    ("POST", "/v1/search"): {"json": {"queries": ["fresh bread"]}},
    ("GET", "/v1/explain"): {"params": {"item": "new"}},
    ("POST", "/v1/preview"): {"json": {"text": "grey cat"}},
    ("POST", "/v1/represent"): {"json": {"texts": ["grey cat"]}},
    ("DELETE", "/v1/items/{id:path}"): {},
}  # in an order in which all of them succeed
SWITCH = (
    "POST",
    "/v1/model",
)  # needs a folder of models, and changes no row: tests/serve/test_model_switcher.py


def queued_routes(app):
    policies = app.state.routes.policies
    return {(*route.methods, route.path): policy for route, policy in policies if policy.queue is not None}


def test_every_route_of_the_app_has_a_policy(http):
    policies = http.app.state.routes.policies
    assert [route for route, _ in policies] == http.app.routes
    public = {route.path for route, policy in policies if policy == PUBLIC}
    assert public == {"/", "/docs", "/openapi.json", "/static/{name}"}
    assert {route.path for route, policy in policies if policy == PROBE} == {"/healthz", "/readyz"}
    assert queued_routes(http.app).keys() == {*SAMPLE_REQUESTS, SWITCH}


def test_a_route_changes_the_catalog_exactly_if_its_policy_says_so(catalog):
    with serve(catalog, tokens={"read": READ_TOKEN, "write": WRITE_TOKEN}) as http:
        policies = queued_routes(http.app)
        for (method, path), request in SAMPLE_REQUESTS.items():
            url = path.replace("{id:path}", "new").replace("{number}", "1")
            before = catalog.sequence
            reader = http.request(method, url, headers={"authorization": f"Bearer {READ_TOKEN}"}, **request)
            assert (reader.status_code == 403) == (policies[method, path].access == "write"), path
            assert catalog.sequence == before, path
            writer = http.request(method, url, headers={"authorization": f"Bearer {WRITE_TOKEN}"}, **request)
            assert writer.status_code == 200, path
            assert (catalog.sequence > before) == (policies[method, path].access == "write"), path


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/items"), ("DELETE", "/v1/items/{id:path}")])
def test_a_write_route_declared_as_a_read_does_not_write(catalog, monkeypatch, method, path):
    with serve(catalog) as http:
        routes = http.app.state.routes
        wrong = [
            (route, READ if (method, path) == (*getattr(route, "methods", ""), route.path) else policy)
            for route, policy in routes.policies
        ]
        assert wrong != routes.policies
        assert add(http, "new", "grey cat").status_code == 200
        monkeypatch.setattr(routes, "policies", wrong)
        before = catalog.sequence
        request = {"json": {"items": [{"id": "other", "text": "grey dog"}]}} if method == "POST" else {}
        response = http.request(method, path.replace("{id:path}", "new"), **request)
        assert (response.status_code, catalog.sequence) == (500, before)


def test_a_policy_that_contradicts_itself_is_rejected():
    for access, queue in (("read", "write"), ("public", "write"), ("write", "read"), ("write", "search")):
        with pytest.raises(ValueError, match="write queue"):
            RoutePolicy(access, queue)
    assert (READ.needs_token, WRITE.needs_token, PUBLIC.needs_token) == (True, True, False)


def test_the_openapi_description_follows_from_the_policies(catalog):
    with serve(catalog, tokens={"write": WRITE_TOKEN}) as http:
        described = http.get("/openapi.json").json()
        assert described["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in described["paths"].items():
            for method, operation in operations.items():
                open_to_all = path in ("/healthz", "/readyz")
                assert ("security" in operation) == ("401" in operation["responses"]) == (not open_to_all)
                writes = method != "get" and path not in ("/v1/search", "/v1/preview", "/v1/represent")
                assert ("507" in operation["responses"]) == writes, path


def test_an_unknown_query_parameter_is_rejected(http):
    refused = http.get("/v1/items", params={"tags": "pets"})
    assert refused.status_code == 422
    assert refused.json()["got"] == "'tags'"
    assert refused.json()["expected"] == "after, filter, limit, state, tag"
    assert http.delete("/v1/items/any?force=1").status_code == 422


def test_without_tokens_only_local_and_allowed_host_names_are_accepted(catalog):
    with serve(catalog, network={"allowed_hosts": ("shop.local",)}) as http:
        for name in ("127.0.0.1:8765", "localhost", "[::1]:8765", "shop.local:80"):
            assert http.get("/v1/about", headers={"host": name}).status_code == 200
        for name in ("evil.example", "127.0.0.1.evil.example", "shop.local.evil.example:8765", ""):
            assert http.get("/v1/about", headers={"host": name}).status_code == 403
        assert http.get("/healthz", headers={"host": "10.0.0.7"}).status_code == 200


def test_reads_need_a_token_and_writes_the_write_token(catalog):
    with serve(
        catalog, network={"host": "0.0.0.0"}, tokens={"read": READ_TOKEN, "write": WRITE_TOKEN}
    ) as http:

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
        assert statuses(READ_TOKEN) == [200, 200, 200, 403, 403]
        assert statuses(WRITE_TOKEN) == [200] * 5
        assert http.get("/v1/about").headers["www-authenticate"] == "Bearer"
        assert (
            http.post("/v1/items", content=b"{", headers={}).status_code == 401
        )  # before the body is looked at
        assert http.get("/v1/about", headers={"authorization": f"Basic {WRITE_TOKEN}"}).status_code == 401
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert http.get(path).status_code == 200
        assert http.get("/").status_code != 401
        assert http.get("/static/app.js").status_code != 401
        assert http.get("/nowhere").status_code == 401
        assert [http.head(path).status_code for path in ("/healthz", "/", "/v1/about")] == [405, 405, 401]
        reader = {"authorization": f"Bearer {READ_TOKEN}"}
        assert (http.get("/nowhere", headers=reader).status_code, http.delete("/v1/search").status_code) == (
            404,
            401,
        )
        assert http.delete("/v1/nowhere", headers=reader).status_code == 403


def test_a_connection_is_admitted_when_a_request_has_passed_the_checks():
    admitted = []

    class Connection:
        def admit(self):
            admitted.append(path)

    async def respond(*scope_receive_send):
        pass

    routes = RouteTable(FastAPI(), requires_token=True)
    for path, policy in (("/read", READ), ("/page", PUBLIC), ("/probe", PROBE)):
        routes.add("GET", path, policy)(respond)
    settings = ServeSettings(tokens={"write": WRITE_TOKEN})
    access = AccessControl(respond, settings, routes, check_capacity=lambda queue, client: None)
    for token in ("wrong", WRITE_TOKEN):
        for path in ("/read", "/page", "/probe", "/nowhere"):
            headers = [(b"authorization", f"Bearer {token}".encode())]
            scope = {"type": "http", "method": "GET", "path": path, "headers": headers}
            asyncio.run(access({**scope, "state": {"connection": Connection()}}, respond, respond))
    assert admitted == ["/read", "/nowhere"]


def test_a_write_token_alone_is_needed_for_reading_too(catalog):
    with serve(catalog, tokens={"write": WRITE_TOKEN}) as http:
        assert http.get("/v1/about").status_code == 401
        assert http.get("/v1/about", headers={"authorization": f"bearer {WRITE_TOKEN}"}).status_code == 200
    assert not is_same_token(WRITE_TOKEN, None)


def test_requests_above_the_limit_are_429(catalog, monkeypatch):
    entered, go_on = threading.Event(), threading.Event()
    about = catalog.about

    def slow():
        entered.set()
        assert go_on.wait(30)
        return about()

    with serve(catalog, limits={"max_requests": 1}) as http:
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
