"""The service against requests made from its own OpenAPI, right ones and wrong ones.

    python benchmarks/reliability/schema.py --examples 200 --out benchmarks/results/reliability/schema.json

A small model is trained, its catalog served by a real server without tokens and once more with them. Schemathesis makes
requests for each operation; every answer has to be one that the OpenAPI describes (status, content type, headers,
schema), a wrong request has to be refused, a right one not, and none may be answered with a 5xx.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import schemathesis
import torch
from hypothesis import HealthCheck, assume, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup

from metaxc import Dataset, Emmett, Irene, IreneConfig, __version__, split
from metaxc.catalog import Catalog, ConflictError, NewItem
from metaxc.cli.serve_command import listen
from metaxc.serve.app import make_app
from metaxc.serve.client import Client
from metaxc.serve.http_server import HttpServer
from metaxc.serve.rule_types import MOST_FILTER_LENGTH
from metaxc.serve.serve_settings import ServeSettings

TOKEN = "schema-benchmark-write-token"
KNOWN = "stool"
MODES = {"right": GenerationMode.POSITIVE, "wrong": GenerationMode.NEGATIVE}


def small_model() -> Emmett:
    """Texts of two worlds, joined by clicks; trained in seconds."""
    sizes, colours = ("small", "large", "old", "young"), ("red", "green", "blue", "grey", "white")
    items = {f"{size}-{colour}": f"{size} {colour} chair" for size in sizes for colour in colours}
    queries = {f"{colour}-{n}": f"somewhere {colour} to sit, {n}" for n in range(8) for colour in colours}
    clicks = [(name, item) for name, text in queries.items() for item in items if item.split("-")[1] in text]
    dataset, _ = split(Dataset.of(items, queries, clicks, name="chairs"), novel=0.1, test=0.2, seed=0)
    config = IreneConfig(encoder="static", adapter={"epochs": 5, "batch": 64, "learning_rate": 0.01})
    return Irene(config).fit(dataset)


@contextmanager
def served(catalog: Catalog, limits: ServeSettings) -> Iterator[str]:
    """A server in a thread; its address."""
    ready, listening = threading.Event(), listen("127.0.0.1", 0)
    app = make_app(lambda: catalog, limits, on_ready=ready.set)
    server = HttpServer(app, limits)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        if not ready.wait(60):
            raise RuntimeError("the service did not open")
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def operation_ids(schema: Any) -> list[str]:
    """The names of all operations."""
    return [result.ok().definition.raw["operationId"] for result in schema.get_all_operations()]


def meet(case: Any, client: Client) -> None:
    """Let a request be about an item or a click that is there: made-up names never are."""
    with suppress(ConflictError):  # an update has changed it: it is there all the same
        client.add([NewItem(KNOWN, "grey stool")])
    if "id" in (case.path_parameters or {}):
        case.path_parameters["id"] = KNOWN
    if "number" in (case.path_parameters or {}):
        case.path_parameters["number"] = client.click(KNOWN, "somewhere grey").number
    if "item" in (case.query or {}):
        case.query["item"] = KNOWN
    if isinstance(case.body, dict):
        for named in (case.body, *case.body.get("clicks", ())):
            if "item" in named:
                named["item"] = KNOWN
        if "ids" in case.body:
            case.body["ids"] = [KNOWN]
        if "add_tags" in case.body:
            client.update(KNOWN, tags=[])  # else an item could get more tags than the rules allow


def fit_vectors(body: Any, dim: int) -> None:
    """Give the vectors of a right request the length that the model needs, and a direction: how long they are is a
    property of the model, which a schema of the API cannot name."""
    if isinstance(body, dict):
        if isinstance(body.get("vector"), list):
            body["vector"] = [1.0] + [max(-1.0, min(1.0, number)) for number in body["vector"][1:dim]]
            body["vector"] += [0.0] * (dim - len(body["vector"]))
        for value in body.values():
            fit_vectors(value, dim)
    elif isinstance(body, list):
        for value in body:
            fit_vectors(value, dim)


def tried(
    schema: Any, name: str, kind: str, examples: int, client: Client, headers: dict[str, str]
) -> dict[str, Any]:
    """What came of `examples` requests to one operation: answers by status, and what was not as described.

    Every second right request is about an item that is there.
    """
    operation = schema.find_operation_by_id(name)
    statuses: Counter[str] = Counter()
    failures: dict[str, str] = {}
    dim = client.about().dim

    @seed(0)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=MODES[kind]))
    def ask(case: Any) -> None:
        filter = (case.query or {}).get("filter", "")  # how long a filter is as JSON, a schema cannot say
        assume(len(filter if isinstance(filter, str) else json.dumps(filter)) <= MOST_FILTER_LENGTH)
        if kind == "right":
            fit_vectors(case.body, dim)
            if statuses.total() % 2:
                meet(case, client)
        answer = case.call(headers=headers)
        statuses[str(answer.status_code)] += 1
        try:
            case.validate_response(answer, headers=headers)
        except FailureGroup as group:
            for failure in group.exceptions:
                if answer.status_code >= 400 and "request accepted" in failure.title:
                    continue  # 408 and 413 refuse a request as well
                failures.setdefault(f"{failure.title}: {failure}"[:500], case.as_curl_command()[:500])

    try:
        ask()
    except Exception as error:  # for some operations nothing can be wrong
        if "negat" not in str(error).lower() and "unsatisf" not in type(error).__name__.lower():
            raise
    return {"statuses": dict(sorted(statuses.items())), "failures": failures}


def run(examples: int, report: Any = print) -> dict[str, Any]:
    """All operations, right and wrong requests, without and with tokens."""
    logging.getLogger("metaxc.serve").setLevel(logging.CRITICAL)
    model, operations = small_model(), {}
    for guarded in (False, True):
        limits = ServeSettings(tokens={"write": TOKEN}) if guarded else ServeSettings()
        headers = {"Authorization": f"Bearer {TOKEN}"} if guarded else {}
        with tempfile.TemporaryDirectory() as place:
            catalog = Catalog.create(Path(place) / "catalog", model)
            with served(catalog, limits) as url, Client(url, TOKEN if guarded else None) as client:
                schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
                for name in operation_ids(schema):
                    for kind in MODES:
                        found = tried(schema, name, kind, examples, client, headers)
                        operations[f"{name}, {kind} requests" + (", with a token" if guarded else "")] = found
                        report(f"{name} {kind} {found['statuses']} {len(found['failures'])} failures")
    return operations


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=200, help="per operation and kind of request")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    operations = run(asked.examples, lambda line: print(line, file=sys.stderr, flush=True))
    statuses: Counter[str] = Counter()
    for found in operations.values():
        statuses.update(found["statuses"])
    result = {
        "metaxc": __version__,
        "schemathesis": schemathesis.__version__,
        "examples": asked.examples,
        "requests": sum(statuses.values()),
        "server_errors": sum(count for status, count in statuses.items() if status >= "500"),
        "failures": sum(len(found["failures"]) for found in operations.values()),
        "statuses": dict(sorted(statuses.items())),
        "operations": operations,
        "seconds": round(time.perf_counter() - started, 1),
    }
    from proof_run import write_result  # the tests run this file from elsewhere

    result["problems"] = [name for name, found in operations.items() if found["failures"]]
    if result["server_errors"]:
        result["problems"].append(f"{result['server_errors']} server errors")
    write_result(result, asked.out)


if __name__ == "__main__":
    main()
