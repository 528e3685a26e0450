"""The OpenAPI description is true: requests generated from it get the described responses, and never a 5xx.

A few examples of `benchmarks/reliability/schema.py`.
"""

from pathlib import Path
from runpy import run_path

import pytest
import schemathesis
from running_service import running

from metaxc.catalog import Catalog
from metaxc.serve.client import Client

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "reliability" / "schema.py"
OPERATIONS = [
    *("about", "add", "click", "delete_item", "delete_items", "explain", "get_item", "health", "list_items"),
    *("metrics", "model_status", "patch_item", "preview", "ready", "represent", "search", "switch_model"),
    *("undo", "update_item"),
]
NO_INPUT = {"about", "health", "metrics", "model_status", "ready"}


@pytest.fixture(scope="module")
def benchmark():
    return run_path(str(BENCHMARK))


@pytest.fixture(scope="module")
def api(model, tmp_path_factory):
    catalog = Catalog.create(tmp_path_factory.mktemp("schema") / "catalog", model)
    with running(catalog) as url, Client(url) as client:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json"), client


@pytest.mark.parametrize("name", OPERATIONS)
def test_generated_requests_get_the_described_responses(api, benchmark, name):
    (schema, client), tried = api, benchmark["tried"]
    right = tried(schema, name, "right", 10, client, {})
    assert right["failures"] == {}
    assert right["statuses"]["403" if name == "switch_model" else "200"] > 0  # it has no folder of models
    if name not in NO_INPUT:
        wrong = tried(schema, name, "wrong", 10, client, {})
        assert wrong["failures"] == {}
        assert wrong["statuses"]["422"] > 0
        assert not {status for status in wrong["statuses"] if status >= "500"}


def test_the_openapi_description_lists_every_operation_and_its_errors(api, benchmark, http):
    assert sorted(benchmark["operation_ids"](api[0])) == OPERATIONS
    described = http.get("/openapi.json").json()
    for path in described["paths"].values():
        for one in path.values():
            if one["operationId"] not in ("health", "ready"):
                assert {"413", "422", "429", "503"} <= one["responses"].keys()
    error = described["components"]["schemas"]["ErrorResponse"]["properties"]
    assert error.keys() == http.get("/v1/items/none").json().keys()
    page = http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "<script" not in page.text
    assert "//" not in page.text.replace("</", ""), "nothing from other sites"
    for path, methods in described["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in page.text
    for field in described["components"]["schemas"]["SearchRequest"]["properties"]:
        assert f"<td>{field}</td>" in page.text
