"""The metrics of the service."""

import math

from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from running_service import HOME, add

from metaxc.serve.app import make_app
from metaxc.serve.prometheus_metrics import SampledRecall
from metaxc.serve.serve_settings import ServeSettings


def scrape(http):
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_the_metrics_count_requests_stages_and_items(http, model, catalog):
    add(http, "new", "grey cat")
    http.post("/v1/clicks", json={"item": "new", "query": "fresh bread"})
    for _ in range(3):
        http.post("/v1/search", json={"queries": ["fresh bread"]})
    http.get("/v1/items/none")
    http.get("/v1/items/other%2Fnone")
    found = scrape(http)
    assert found["metaxc_stage_seconds_count", "encode"] == found["metaxc_stage_seconds_count", "search"] == 3
    assert found["metaxc_stage_seconds_count", "write"] == 2
    assert found["metaxc_stage_seconds_count", "queue"] == 7
    assert found["metaxc_requests_total", "/v1/search", "200", "POST"] == 3
    assert found["metaxc_requests_total", "/v1/items/{id:path}", "404", "GET"] == 2
    assert found["metaxc_items", "clicked"] == 1
    assert found["metaxc_items", "observed"] == len(model.observed)
    assert found["metaxc_index_info", catalog.about().index] == 1
    assert {key[1] for key in found if key[0] == "metaxc_queue_depth"} == {
        "search",
        "write",
        "read",
        "sample",
    }
    assert found["metaxc_queue_depth", "search"] == 0


def test_unknown_paths_share_one_series(http):
    for name in ("a", "b", "c"):
        http.get(f"/{name}")
    assert scrape(http)["metaxc_requests_total", "404", "GET", "other"] == 3


def test_what_clients_make_up_adds_no_series(http):
    def request_all(names):
        for name in names:
            http.request(f"M{name}", "/healthz")
            http.request(f"M{name}", f"/v1/items/{name}", params={name: name}, headers={f"x-{name}": name})
            http.request("GET", f"/{name}/{name}", headers={"content-type": name})
            http.request("POST", f"/static/{name}")

    scrape(http)
    request_all("abc")
    before = scrape(http)
    request_all("defghijk")
    after = scrape(http)
    assert after.keys() == before.keys()
    assert after["metaxc_requests_total", "/healthz", "405", "other"] == 11


def test_two_apps_have_separate_metrics(http):
    other = TestClient(make_app(lambda: None), base_url=HOME)
    http.get("/v1/about")
    assert ("metaxc_requests_total", "/v1/about", "200", "GET") in scrape(http)
    assert ("metaxc_requests_total", "/v1/about", "200", "GET") not in scrape(other)


def test_sampled_searches_set_the_recall(catalog):
    with TestClient(
        make_app(catalog, ServeSettings(queues={"recall_sample_rate": 1})), base_url=HOME
    ) as http:
        assert math.isnan(scrape(http)["metaxc_index_recall",])
        service = http.app.state.service
        http.post("/v1/search", json={"queries": ["fresh bread", "raw melon"]})
        http.post("/v1/search", json={"queries": ["raw melon"], "states": ["novel"]})  # filtered: not sampled
        service.queues["sample"].close()
        found = scrape(http)
        assert found["metaxc_index_recall_queries",] == 2
        assert found["metaxc_index_recall",] == 1


def test_the_sampled_recall_is_the_mean_over_its_window():
    recall = SampledRecall()
    recall.record([1, 0.5])
    assert (recall.mean, len(recall)) == (0.75, 2)
