"""What the service tells Prometheus."""

import math

import numpy as np
import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from served import HOME, add

from metaxc.serve.app import make_app
from metaxc.serve.prometheus_metrics import Recall
from metaxc.serve.searching import shares
from metaxc.serve.serve_settings import ServeSettings


def figures(http):
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_the_metrics_are_what_was_done(http, model, catalog):
    add(http, "new", "grey cat")
    http.post("/v1/clicks", json={"item": "new", "query": "fresh bread"})
    for _ in range(3):
        http.post("/v1/search", json={"queries": ["fresh bread"]})
    http.get("/v1/items/none")
    http.get("/v1/items/other%2Fnone")
    found = figures(http)
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


def test_a_path_nobody_knows_makes_no_series_of_its_own(http):
    for name in ("a", "b", "c"):
        http.get(f"/{name}")
    assert figures(http)["metaxc_requests_total", "404", "GET", "none"] == 3


def test_two_apps_do_not_mix(http):
    other = TestClient(make_app(lambda: None), base_url=HOME)
    http.get("/v1/about")
    assert ("metaxc_requests_total", "/v1/about", "200", "GET") in figures(http)
    assert ("metaxc_requests_total", "/v1/about", "200", "GET") not in figures(other)


def test_sampled_searches_tell_the_recall(catalog):
    with TestClient(make_app(catalog, ServeSettings(recall_rate=1)), base_url=HOME) as http:
        assert math.isnan(figures(http)["metaxc_index_recall",])
        service = http.app.state.service
        http.post("/v1/search", json={"queries": ["fresh bread", "raw melon"]})
        http.post("/v1/search", json={"queries": ["raw melon"], "states": ["novel"]})  # filtered: not sampled
        service.lanes["sample"].close()
        found = figures(http)
        assert found["metaxc_index_recall_queries",] == 2
        assert found["metaxc_index_recall",] == 1


def test_recall_is_the_share_of_exact_answers_found():
    found = np.array([[1, 2, 9, -1], [4, 5, 6, 7], [-1, -1, -1, -1]])
    exact = np.array([[1, 2, 3, -1], [4, 5, 6, 7], [-1, -1, -1, -1]])
    assert shares(found, exact) == pytest.approx([2 / 3, 1])
    recall = Recall()
    recall.sampled([1, 0.5])
    assert (recall.value, recall.samples) == (0.75, 2)
