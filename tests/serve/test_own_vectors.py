"""A model of your own vectors, from its training to the next one: served, added to, searched, clicked, restarted,
exported, synchronised, migrated. No text is encoded anywhere."""

import json

import numpy as np
import pytest
from running_service import running
from typer.testing import CliRunner

from metaxc.catalog import Catalog, CatalogError, NewClick, NewItem, migrate
from metaxc.cli.main import app
from metaxc.cli.serve_command import open_or_create_catalog
from metaxc.data import read_folder, write_folder
from metaxc.emmett import Emmett
from metaxc.encoders import Vectors
from metaxc.errors import DataError
from metaxc.serve.client import Client

TRAIN = ("--encoder", "vectors", "--folds", "0", "--threads", "1")


def run(*args, **options):
    result = CliRunner().invoke(app, [str(arg) for arg in args], **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def data(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "data"
    write_folder(world.dataset, folder)
    train, test = world.dataset.train, world.dataset.test
    np.save(folder / "vectors.items.npy", world.encoder.items)
    np.save(folder / "vectors.queries.train.npy", world.encoder.encode_queries(train.queries.texts))
    np.save(folder / "vectors.queries.test.npy", world.encoder.encode_queries(test.queries.texts))
    return folder


@pytest.fixture(scope="module")
def own_model(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "model"
    assert run("train", data, "--out", folder, *TRAIN).exit_code == 0
    return folder


@pytest.fixture
def item(world):
    return world.encoder.encode_items(["i4"])[0]


@pytest.fixture
def query(world):
    """A query of the group of `i4`."""
    return world.encoder.encode_queries(["t0"])[0]


@pytest.fixture
def lived(own_model, data, tmp_path, item, query):
    """The folder of a catalog that a service has filled by vectors and closed."""
    folder = tmp_path / "catalog"
    with (
        running(open_or_create_catalog(folder, own_model, data, False, None, None)) as url,
        Client(url) as client,
    ):
        client.add(
            [
                {"id": "new", "text": "never seen", "vector": item},
                {"id": "alone", "vector": item, "fields": {"price": 5}},
            ]
        )
        assert "new" in [hit.id for hit in client.search([query], 12).answers[0].hits]
        client.clicks([NewClick("new", "a new query", 1_700_000_000.0, query), ("new", "q0")])
        with pytest.raises(DataError, match="No vector for this query"):
            client.click("new", "another new query")
    return folder


def test_a_restart_has_everything(lived, own_model, query):
    catalog = open_or_create_catalog(lived, own_model, None, False, None, None)
    with running(catalog) as url, Client(url) as client:
        explained = client.explain("new")
        assert explained.current
        assert [click.query for click in explained.clicks] == ["q0", "a new query"]
        assert explained.clicks[1].at == 1_700_000_000.0
        assert {"new", "alone"} <= {hit.id for hit in client.search([query], 12).answers[0].hits}
        cheap = {"field": "price", "lt": 10}
        assert [hit.id for hit in client.search([query], filter=cheap).answers[0].hits] == ["alone"]


def test_fields_and_vectors_are_changed_together_and_pages_go_on_by_vector(
    lived, own_model, world, item, query
):
    catalog = open_or_create_catalog(lived, own_model, None, False, None, None)
    other = world.encoder.encode_items(["i9"])[0]
    with running(catalog) as url, Client(url) as client:
        first = client.update("alone", vector=other, set_fields={"price": 7})
        assert first.fields == {"price": 7}
        assert np.allclose(catalog._row("alone").embedding, other, atol=1e-6)
        body = {"vector": item.tolist(), "fields": {"price": 8, "brand": "x"}}
        assert client._http.put("/v1/items/alone", json=body).json()["fields"] == body["fields"]
        assert np.allclose(catalog._row("alone").embedding, item, atol=1e-6)
        client.add_all([NewItem("third", "no text", (), {"price": 9}, item)])
        priced = {"field": "price", "exists": True}
        pages = [client.search([query], 1, filter=priced, offset=start).answers[0].hits for start in range(3)]
        assert sorted(hit.id for page in pages for hit in page) == ["alone", "third"]


def test_a_vector_store_is_searched_by_vector(lived, own_model, query, tmp_path):
    url = f"parquet://{tmp_path}/vectors"
    assert run("sync", lived, "--to", url, "--cutover", "--model", own_model, "--sample", "20").exit_code == 0
    np.save(tmp_path / "queries.npy", query[None])
    options = ("-k", 5, "--exposure", 0.2, "--json")
    found = run("search", own_model, "--vectors", tmp_path / "queries.npy", *options, "--via", url)
    with Catalog.open(lived, Emmett.load(own_model), read_only=True) as catalog:
        wanted = catalog.search(query[None], 5, exposure=0.2)[0]
    answer = json.loads(found.stdout)["answers"][0]
    assert answer["query"] == "vector 1"
    assert [hit["id"] for hit in answer["hits"]] == [hit.id for hit in wanted]
    assert answer["hits"][0]["score"] == pytest.approx(wanted[0].score, abs=1e-4)


def test_the_next_model_is_trained_on_the_export_and_takes_over(
    lived, own_model, data, tmp_path, item, query
):
    out, next_model = tmp_path / "tonight", tmp_path / "next"
    exported = run("catalog", "export", lived, out, "--format", "dataset", "--with-training-data", data)
    assert "train with --encoder vectors" in exported.stderr
    dataset = read_folder(out)
    items, queries = (np.load(out / f"vectors.{name}.npy") for name in ("items", "queries"))
    assert items.shape == (202, 96)
    assert np.allclose(items[dataset.items.row_of["new"]], item, atol=1e-6)
    assert dataset.items.fields[dataset.items.row_of["alone"]] == {"price": 5}
    row = dataset.train.queries.texts.index("a new query")
    assert np.allclose(queries[row], query, atol=1e-6)
    assert len(queries) == len(dataset.train.queries)
    assert run("train", out, "--out", next_model, *TRAIN).exit_code == 0

    with Catalog.open(lived, Emmett.load(own_model)) as catalog:  # meanwhile
        catalog.add([NewItem("late", "too late", vector=item)])
        catalog.click("late", "a late query", query)
        before = catalog._row("new").embedding
    loaded = Emmett.load(next_model)
    assert not loaded.encoder.has_item("too late")
    assert migrate(lived, loaded)
    with Catalog.open(lived, loaded) as catalog:
        assert np.allclose(catalog._row("late").embedding, item, atol=1e-6)
        assert np.allclose(catalog._row("new").embedding, before, atol=1e-6)
        assert catalog.get("alone").fields == {"price": 5}
        assert catalog.explain("late").clicks[0].query == "a late query"
        assert "late" in [hit.id for hit in catalog.search(query[None], 12)[0]]


def test_vectors_of_another_space_are_not_mixed(lived, own_model, world):
    """The same texts with other vectors: what has no vector there cannot be moved."""
    turned = np.linalg.qr(np.random.default_rng(3).normal(size=(96, 96)))[0].astype(np.float32)
    model = Emmett.load(own_model)
    old = model.encoder
    model.encoder = Vectors(old.query_texts, old.queries @ turned, old.item_texts, old.items @ turned)
    with pytest.raises(CatalogError, match=r"cannot be moved to this model: No vector for this item"):
        migrate(lived, model)
    with Catalog.open(lived, Emmett.load(own_model)) as catalog:
        assert "new" in catalog


def test_the_command_line_adds_clicks_and_searches_by_vector(lived, own_model, item, query, tmp_path):
    np.save(tmp_path / "item.npy", item)
    (tmp_path / "query.json").write_text(json.dumps(query.tolist()))
    given = ("--id", "cli", "--vector", tmp_path / "item.npy", "--field", "price=3")
    added = run("catalog", "add", lived, own_model, *given)
    assert "1 added" in added.output
    clicked = run(
        "catalog", "click", lived, own_model, "cli", "any name", "--vector", tmp_path / "query.json"
    )
    assert "cli is clicked and has 1 clicks" in clicked.output
    lines = json.dumps({"vector": query.tolist(), "text": "named"}) + "\n"
    found = run("catalog", "search", lived, own_model, "--vectors", "-", "-k", 12, "--json", input=lines)
    answer = json.loads(found.stdout)["answers"][0]
    assert answer["query"] == "named"
    assert "cli" in [hit["id"] for hit in answer["hits"]]
    options = ("--vectors", "-", "--filter", '{"field": "price", "lt": 4}', "--json")
    found = run("catalog", "search", lived, own_model, *options, input=lines)
    assert [hit["id"] for hit in json.loads(found.stdout)["answers"][0]["hits"]] == ["cli"]
    clicks = tmp_path / "clicks.jsonl"
    click = {"query": "more", "item": "cli", "vector": query.tolist()}
    clicks.write_text(json.dumps(click) + "\n" + json.dumps({"query": "more", "item": "cli"}) + "\n")
    recorded = run("catalog", "clicks", lived, own_model, clicks, "--skip-bad")
    assert "1 clicks recorded, 0 were recorded before, 1 lines with problems" in recorded.stdout
    assert "has none for this query" in recorded.stderr
    np.save(tmp_path / "queries.npy", query[None])
    options = ("--queries", "--vectors", tmp_path / "queries.npy", "--exposure", 0.5)
    [expected] = Emmett.load(own_model).encode_queries(query[None], 0.5)
    shown = json.loads(run("represent", own_model, *options).stdout)["vector"]
    assert np.allclose(shown, expected, atol=1e-6)


def test_a_file_is_uploaded_to_a_running_service_and_repeated(lived, own_model, item, tmp_path):
    lines = [json.dumps({"id": f"up {n}", "vector": item.tolist()}) for n in range(300)]
    file = tmp_path / "items.jsonl"
    file.write_text("\n".join([*lines, '{"id": "bad"}']))
    with running(Catalog.open(lived, Emmett.load(own_model))) as url, Client(url) as client:
        with pytest.raises(DataError, match=r"line 301: An item has no 'text'(.|\n)*256 items of it"):
            run("catalog", "upload", url, file)
        assert sum(client.about().items.values()) == 202 + 256
        result = run("catalog", "upload", url, "-", "--json", input="\n".join(lines))
        assert json.loads(result.stdout) == {"added": 44, "unchanged": 256}
