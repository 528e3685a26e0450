"""The operations of the catalog over HTTP."""

import json

import pytest
from fastapi.testclient import TestClient
from running_service import HOME, add

from metaxc.catalog import Catalog
from metaxc.serve.app import make_app
from metaxc.serve.rule_types import MOST_FILTER_LENGTH
from metaxc.serve.serve_settings import ServeSettings


def hits(http, query, **asked):
    answer = http.post("/v1/search", json={"queries": [query], **asked})
    assert answer.status_code == 200
    return answer.json()["answers"][0]["hits"]


def test_an_added_item_is_in_the_next_search(http):
    before = hits(http, "fresh bread", k=100)
    assert "new" not in {hit["id"] for hit in before}
    assert add(http, "new", "grey cat", tags=["pets"]).json() == {"added": 1, "unchanged": 0}
    found = hits(http, "fresh bread", k=20)
    assert "new" in {hit["id"] for hit in found}
    assert hits(http, "fresh bread", tags=["pets"])[0]["id"] == "new"
    assert add(http, "new", "grey cat", tags=["pets"]).json() == {"added": 0, "unchanged": 1}


def test_a_search_returns_the_hits_of_each_query_and_the_seconds(http, model):
    asked = ["fresh bread", "cheap lemon"]
    answer = http.post("/v1/search", json={"queries": asked, "k": 3}).json()
    assert [one["query"] for one in answer["answers"]] == asked
    expected = [[hit.id for hit in line] for line in model.search(asked, 3)]
    assert [[hit["id"] for hit in one["hits"]] for one in answer["answers"]] == expected
    assert answer["seconds"].keys() == {"queue", "encode", "search"}


def test_the_exposure_of_a_request_is_added_to_the_scores_of_novel_items(http, model):
    def scores(**body):
        return {hit["id"]: (hit["score"], hit["state"]) for hit in hits(http, "fresh bread", k=100, **body)}

    default, low, high = scores(), scores(exposure=0), scores(exposure=3.5)
    novel = {name for name, (_, state) in low.items() if state == "novel"}
    assert novel
    response = model.encode_queries(["fresh bread"], 1.0)[0, -1]  # of the classifiers to this query
    for name in novel:
        gained = model.calibration.exposure * response
        assert default[name][0] - low[name][0] == pytest.approx(gained, abs=1e-5)
        assert high[name][0] - low[name][0] == pytest.approx(3.5 * response, abs=1e-5)
    assert {hit["id"] for hit in hits(http, "fresh bread", k=len(novel), exposure=50)} == novel


def test_states_filter_a_search(http, model):
    found = hits(http, "fresh bread", k=100, states=["novel"])
    assert len(found) == int(model.novel.sum())
    assert {hit["state"] for hit in found} == {"novel"}


def test_a_first_click_changes_an_items_neighbours(http):
    add(http, "new", "grey cat")

    def neighbours():
        explained = http.get("/v1/explain", params={"item": "new"}).json()
        return {one["id"]: one["voter"] for one in explained["explanation"]["neighbours"]}, explained["item"][
            "state"
        ]

    before, state = neighbours()
    assert state == "novel"
    clicked = http.post("/v1/clicks", json={"item": "new", "query": "cheap lemon"})
    assert clicked.status_code == 200
    assert clicked.json()["state"] == "clicked"
    after, state = neighbours()
    assert state == "clicked"
    assert after.keys() != before.keys()
    assert "cheap lemon" in after.values()
    assert "new" in {hit["id"] for hit in hits(http, "sweet lemon", k=10)}
    undone = http.delete(f"/v1/clicks/{clicked.json()['number']}")
    assert (undone.status_code, undone.json()["state"]) == (200, "novel")
    assert neighbours()[0] == before


def test_an_item_is_added_changed_and_deleted(http):
    name = "a/b c?d=ü#"
    path = "/v1/items/a%2Fb%20c%3Fd=%C3%BC%23"
    assert add(http, name, "grey cat").status_code == 200
    assert http.get(path).json()["id"] == name
    changed = http.put(path, json={"text": "grey dog", "tags": ["b", "a"]}).json()
    assert changed["text"] == "grey dog"
    assert sorted(changed["tags"]) == ["a", "b"]
    assert http.put(path, json={"tags": []}).json()["text"] == "grey dog"
    assert http.delete(path).json() == {"deleted": 1}
    gone = http.get(path)
    assert gone.status_code == 404
    assert gone.json().keys() == {"what", "got", "expected", "fix"}
    assert http.delete(path).status_code == 404
    assert name not in {hit["id"] for hit in hits(http, "fresh bread", k=100)}


def test_the_same_id_with_other_content_is_a_conflict_and_nothing_of_the_batch_is_added(http):
    add(http, "new", "grey cat")
    items = [{"id": "other", "text": "grey dog"}, {"id": "new", "text": "grey fox"}]
    answer = http.post("/v1/items", json={"items": items})
    assert answer.status_code == 409
    assert http.get("/v1/items/other").status_code == 404


def test_a_list_comes_in_pages(http, model):
    add(http, "new", "grey cat", tags=["pets"])
    names, after = [], None
    while True:
        asked = {"limit": 30, **({"after": after} if after else {})}
        page = http.get("/v1/items", params=asked).json()
        assert len(page["items"]) <= 30
        names += [item["id"] for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert sorted(names) == sorted([*model.items.ids, "new"])
    tagged = http.get("/v1/items", params={"tag": "pets", "state": ["novel", "clicked"]}).json()
    assert [item["id"] for item in tagged["items"]] == ["new"]


def test_a_preview_recomputes_without_a_neighbour(http):
    whole = http.post("/v1/preview", json={"text": "grey cat"}).json()
    first = whole["explanation"]["neighbours"][0]["id"]
    without = http.post("/v1/preview", json={"text": "grey cat", "without": [first]}).json()
    assert first not in {one["id"] for one in without["explanation"]["neighbours"]}
    assert [one["id"] for one in without["off"]] == [first]
    assert http.get("/v1/items", params={"limit": 500}).json()["next"] is None  # nothing was added


def test_represented_texts_are_the_models_meta_classifiers(http, model):
    answer = http.post("/v1/represent", json={"texts": ["grey cat", "old dog"]}).json()
    assert answer["model"] == model.fingerprint
    assert answer["vectors"] == pytest.approx(model.represent(["grey cat", "old dog"]), abs=1e-5)


def test_about_summarizes_the_catalog(http, model):
    about = http.get("/v1/about").json()
    assert about["model"] == model.fingerprint
    assert sum(about["items"].values()) == len(model.items)
    assert about["read_only"] is False
    assert about["exposure"] == model.calibration.exposure == -0.05
    assert about["exposure_curve"] == model.about["exposure_curve"]
    assert [point["exposure"] for point in about["exposure_curve"] if point["chosen"]] == [-0.05]


def test_every_response_has_the_security_headers(http):
    for path in ("/", "/static/index.html", "/static/none.js", "/v1/about", "/healthz", "/nowhere"):
        answer = http.get(path)
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-cache"
    assert http.get("/static/../app.py").status_code == 404
    assert http.get("/static/%2e%2e/app.py").status_code == 404


def test_a_read_only_catalog_is_searched_but_not_changed(catalog, model, tmp_path):
    catalog.close()
    reader = Catalog.open(tmp_path / "catalog", model, read_only=True)
    with TestClient(make_app(reader), base_url=HOME) as http:
        assert hits(http, "fresh bread")
        refused = add(http, "new", "grey cat")
        assert refused.status_code == 403
        assert "reading only" in refused.json()["what"]


def test_requests_are_rejected_until_the_catalog_is_open(catalog):
    app = make_app(lambda: catalog, ServeSettings())
    client = TestClient(app, base_url=HOME)  # without its lifespan: still opening
    assert client.get("/readyz").status_code == 503
    assert client.get("/readyz").json() == {"ready": False}
    assert client.get("/healthz").json() == {"status": "ok"}
    refused = client.get("/v1/about")
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert "opening" in refused.json()["what"]
    assert client.get("/metrics").status_code == 200


def test_internal_errors_are_logged_but_not_shown(http, catalog, monkeypatch, caplog):
    def breaks(*args, **kwargs):
        raise RuntimeError("secret /home/somebody/catalog")

    monkeypatch.setattr(catalog, "get", breaks)
    answer = http.get("/v1/items/any")
    assert answer.status_code == 500
    assert answer.json() == {
        "what": "Internal error",
        "got": None,
        "expected": None,
        "fix": "see the service's log",
    }
    assert "secret" in caplog.text
    assert "Traceback" in caplog.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_list_of_clicks_is_recorded_completely_or_not_at_all(http, catalog):
    add(http, "new", "grey cat")
    clicks = [{"item": "new", "query": "cheap lemon", "at": 5.5}, {"item": "new", "query": "fresh bread"}]
    answer = http.post("/v1/clicks", json={"clicks": clicks})
    assert answer.status_code == 200
    assert [(one["query"], one["state"]) for one in answer.json()["clicks"]] == [
        ("cheap lemon", "clicked"),
        ("fresh bread", "clicked"),
    ]
    assert answer.json()["clicks"][0]["at"] == 5.5
    refused = http.post("/v1/clicks", json={"clicks": [*clicks, {"item": "nobody", "query": "fresh bread"}]})
    assert refused.status_code == 404
    assert "nobody" in refused.text
    assert catalog.get("new").clicks == 2
    single = http.post("/v1/clicks", json={"item": "new", "query": "fresh bread", "at": 6})
    assert (single.json()["at"], single.json()["state"]) == (6.0, "observed")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"clicks": []}, "clicks"),
        ({"clicks": [{"item": "new"}]}, "clicks.0.query"),
        ({"clicks": [{"item": "new", "query": "x", "at": 1e12}]}, "clicks.0.at"),
        ({"item": "new"}, "query"),
        ({"item": "new", "query": "x", "clicks": []}, "clicks"),
    ],
)
def test_invalid_clicks_are_named(http, body, field):
    answer = http.post("/v1/clicks", json=body)
    assert answer.status_code == 422
    assert field in answer.json()["what"]


def test_several_items_are_deleted_completely_or_not_at_all(http, catalog):
    for name in ("a", "b", "delete"):
        add(http, name, "grey cat")
    assert http.post("/v1/items/delete", json={"ids": ["a", "nobody"]}).status_code == 404
    assert "a" in catalog
    answer = http.post("/v1/items/delete", json={"ids": ["a", "b", "nobody"], "ignore_missing": True})
    assert answer.json() == {"deleted": 2}
    assert http.get("/v1/items/delete").json()["id"] == "delete"  # an item may have this id


def test_parts_of_an_item_are_patched(http):
    add(http, "new", "grey cat", tags=["pets"])
    path = "/v1/items/new"
    assert http.patch(path, json={"add_tags": ["sale"]}).json()["tags"] == ["pets", "sale"]
    assert http.patch(path, json={"remove_tags": ["pets"]}).json()["tags"] == ["sale"]
    changed = http.patch(path, json={"text": "old dog"}).json()
    assert (changed["text"], changed["tags"]) == ("old dog", ["sale"])
    assert http.patch(path, json={"price": 3}).status_code == 422
    assert http.patch("/v1/items/nobody", json={"text": "old dog"}).status_code == 404


def test_a_list_takes_the_filter_of_a_search(http):
    for name, price in (("a", 19.9), ("b", 5), ("c", 7)):
        add(http, name, "grey cat", tags=["pets"], fields={"price": price})

    def listed(filter, **more):
        return http.get("/v1/items", params={"filter": json.dumps(filter), **more})

    cheap = {"field": "price", "lt": 10}
    first = listed(cheap, limit=1).json()
    assert [item["id"] for item in first["items"]] == ["b"]
    last = listed(cheap, limit=1, after=first["next"]).json()
    assert ([item["id"] for item in last["items"]], last["next"]) == (["c"], None)
    dear = listed({"not": cheap}, tag="pets").json()
    assert [item["id"] for item in dear["items"]] == ["a"]
    assert listed({"and": [cheap, {"state": "observed"}]}).json()["items"] == []


@pytest.mark.parametrize(
    "given", ['{"price": 4}', '{"field": "price", "lt": ', "", '{"field": "a", "lt": NaN}', "[" * 5000]
)
def test_a_list_refuses_a_filter_that_is_none(http, given):
    answer = http.get("/v1/items", params={"filter": given})
    assert (answer.status_code, answer.json()["what"]) == (422, "The filter is not valid")


def test_a_list_refuses_a_filter_that_is_too_long(http):
    given = '{"tag": "a"' + " " * MOST_FILTER_LENGTH + "}"
    answer = http.get("/v1/items", params={"filter": given})
    assert (answer.status_code, answer.json()["what"]) == (422, "The filter is too long for a list")


def test_the_description_of_a_list_has_the_filter_with_its_schema(http):
    described = http.get("/openapi.json").json()
    parameters = described["paths"]["/v1/items"]["get"]["parameters"]
    (filter,) = [one for one in parameters if one["name"] == "filter"]
    schema = filter["content"]["application/json"]["schema"]
    assert len(schema["oneOf"]) == 6
    for one in schema["oneOf"]:
        assert one["$ref"].removeprefix("#/components/schemas/") in described["components"]["schemas"]
