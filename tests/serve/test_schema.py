"""The OpenAPI is what the service does: requests made from it are answered as it says, and never with a 5xx.

Few examples here; `benchmarks/reliability/schema.py` has more.
"""

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, settings
from jsonschema_rs import validator_for
from served import HOME

from metaxc.catalog import Catalog
from metaxc.serve.app import make_app

OPERATIONS = {
    "about", "add", "click", "delete_item", "explain", "get_item", "health", "list_items", "metrics", "preview",
    "ready", "represent", "search", "undo", "update_item",
}  # fmt: skip


@pytest.fixture(scope="module")
def api(model, tmp_path_factory):
    catalog = Catalog.create(tmp_path_factory.mktemp("schema") / "catalog", model)
    app = make_app(catalog)
    with TestClient(app, base_url=HOME):  # keeps the lifespan open
        yield schemathesis.openapi.from_asgi("/openapi.json", app)


schema = schemathesis.pytest.from_fixture("api")


@schema.parametrize()
@settings(
    max_examples=10, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
def test_requests_made_from_the_schema_are_answered_as_it_says(case):
    case.call_and_validate(base_url=HOME)


def test_the_openapi_is_valid_and_names_every_verb(http):
    described = http.get("/openapi.json").json()
    operations = [one for path in described["paths"].values() for one in path.values()]
    assert {one["operationId"] for one in operations} == OPERATIONS
    for one in operations:
        if one["operationId"] not in ("health", "ready"):
            assert {"413", "422", "429", "503"} <= one["responses"].keys()
    problem = {**described["components"]["schemas"]["Problem"]}
    validator_for(problem).validate(http.get("/v1/items/none").json())
    assert http.get("/docs").status_code == 404
