"""The alert rules and the dashboard of deploy/ ask for metrics and labels that the service really shows."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from running_service import add

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus-alerts.yaml"
DASHBOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
ALERTS = [
    rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
QUERIES = [alert["expr"] for alert in ALERTS] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
]
ADDED_BY_PROMETHEUS = {"instance", "job"}


@pytest.fixture
def shown(http):
    """The labels of each time series by its name, after some use."""
    add(http, "new", "grey cat")
    http.post("/v1/search", json={"queries": ["fresh bread"]})
    labels = {}
    for family in text_string_to_metric_families(http.get("/metrics").text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def test_every_metric_and_label_exists(shown):
    used = set()
    for query in QUERIES:
        names = re.findall(r"\bmetaxc_\w+", query)
        used |= set(names)
        assert names or "up{" in query, query
        for name in names:
            assert name in shown, query
        known = set().union(*(shown[name] for name in names), ADDED_BY_PROMETHEUS)
        for listed in re.findall(r"(?:by|on) \(([\w, ]+)\)", query) + re.findall(r"(\w+)=~?\"", query):
            assert set(listed.split(", ")) <= known, query
    # Everything that the service shows is on the dashboard or in a rule.
    families = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in used}
    wanted = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in shown}
    assert {name for name in wanted if not name.endswith("_created")} - families - {
        name.removesuffix("_total") for name in families
    } == set()


def test_the_routes_and_outcomes_that_are_asked_for_exist(shown, http):
    text = http.get("/metrics").text
    for query in QUERIES:
        for label, value in re.findall(r"(route|outcome)=\"([^\"]+)\"", query):
            assert f'{label}="{value}"' in text, query


def test_every_alert_says_what_it_is_and_what_to_look_at():
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS) == 8
    for alert in ALERTS:
        assert alert["labels"]["severity"] in ("critical", "warning", "info")
        assert alert["annotations"].keys() == {"summary", "description"}


def test_the_panels_do_not_overlap_and_use_the_chosen_data_source():
    places = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & places, panel["title"]
        places |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: apt install prometheus"
)
def test_promtool_accepts_the_rules():
    checked = subprocess.run(
        ["promtool", "check", "rules", RULES], capture_output=True, text=True, check=False
    )
    assert not checked.returncode, checked.stdout + checked.stderr
