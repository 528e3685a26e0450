"""The OpenAPI is what the service does: requests made from it are answered as it says, and never with a 5xx.

A few examples of `benchmarks/reliability/schema.py`.
"""

from pathlib import Path
from runpy import run_path

import pytest
import schemathesis
from served import running

from metaxc.catalog import Catalog
from metaxc.serve.client import Client

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "reliability" / "schema.py"
OPERATIONS = [
    *("about", "add", "click", "delete_item", "explain", "get_item", "health", "list_items", "metrics"),
    *("preview", "ready", "represent", "search", "undo", "update_item"),
]
NO_INPUT = {"about", "health", "metrics", "ready"}


@pytest.fixture(scope="module")
def benchmark():
    return run_path(str(BENCHMARK))


@pytest.fixture(scope="module")
def api(model, tmp_path_factory):
    catalog = Catalog.create(tmp_path_factory.mktemp("schema") / "catalog", model)
    with running(catalog) as url, Client(url) as client:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json"), client


@pytest.mark.parametrize("name", OPERATIONS)
def test_requests_made_from_the_schema_are_answered_as_it_says(api, benchmark, name):
    (schema, client), tried = api, benchmark["tried"]
    right = tried(schema, name, "right", 10, client, {})
    assert right["failures"] == {}
    assert right["statuses"]["200"] > 0
    if name not in NO_INPUT:
        wrong = tried(schema, name, "wrong", 10, client, {})
        assert wrong["failures"] == {}
        assert wrong["statuses"]["422"] > 0
        assert not {status for status in wrong["statuses"] if status >= "500"}


def test_the_openapi_names_every_verb_and_what_is_refused(api, benchmark, http):
    assert sorted(benchmark["operation_ids"](api[0])) == OPERATIONS
    described = http.get("/openapi.json").json()
    for path in described["paths"].values():
        for one in path.values():
            if one["operationId"] not in ("health", "ready"):
                assert {"413", "422", "429", "503"} <= one["responses"].keys()
    problem = described["components"]["schemas"]["Problem"]["properties"]
    assert problem.keys() == http.get("/v1/items/none").json().keys()
    assert http.get("/docs").status_code == 404
