"""The Python client against a real server."""

import numpy as np
import pytest
from running_service import UNUSUAL_IDS, exercise, running

from metaxc.catalog import Catalog, ConflictError, NewClick, NewItem, NotFoundError
from metaxc.errors import ConfigError, DataError
from metaxc.serve.client import Client
from metaxc.serve.http_errors import ForbiddenError, NotReadyError, TooLargeError, UnauthorizedError
from metaxc.serve.serve_settings import ServeSettings

READ, WRITE = "r" * 20, "w" * 20


def test_items_are_added_as_dicts_too(catalog):
    with running(catalog) as url, Client(url) as client:
        dicts = [{"id": "a", "text": "grey cat"}, {"id": "b", "text": "grey dog", "tags": ["pets"]}]
        assert client.add(dicts).added == 2
        assert catalog.get("b").tags == ("pets",)
        assert catalog.add([{"id": "a", "text": "grey cat"}]).unchanged == 1
        for wrong, named in (
            ({"id": "c", "title": "x", "text": "y"}, "title"),
            ({"id": "c", "txt": "y"}, "did you mean 'text'"),
            ({"id": "c"}, "no 'text'"),
            ("c", "Not an item"),
        ):
            with pytest.raises(DataError, match=named):
                client.add([wrong])


def test_the_client_returns_the_catalogs_records(catalog, model):
    with running(catalog) as url, Client(url) as client:
        assert client.ready()
        name = "a/b c?d=ü#%2F"
        assert client.add([NewItem(name, "grey cat", ("pets",)), NewItem("other", "grey dog")]).added == 2
        assert client.get(name) == catalog.get(name)
        found = client.search(["fresh bread"], 3, tags=["pets"])
        assert list(found.answers[0].hits) == catalog.search(["fresh bread"], 3, tags=["pets"])[0]
        raised = client.search(["fresh bread"], 3, exposure=0.7)
        assert list(raised.answers[0].hits) == catalog.search(["fresh bread"], 3, exposure=0.7)[0]
        click = client.click(name, "cheap lemon")
        assert (click.item, click.state) == (name, "clicked")
        explained = client.explain(name)
        assert explained.clicks[0].number == click.number
        assert "cheap lemon" in {one.voter for one in explained.explanation.neighbours}
        assert client.undo(click.number).state == "novel"
        assert client.update(name, tags=["pets", "grey"]).tags == catalog.get(name).tags
        assert client.list(tags=["grey"]).items == (catalog.get(name),)
        first = client.list(limit=5)
        assert client.list(filter={"not": {"tag": "pets"}}) == catalog.list(filter={"not": {"tag": "pets"}})
        assert client.list(filter={"tag": "pets"}).items == (catalog.get(name),)
        with pytest.raises(DataError, match="too long for a list"):
            client.list(filter={"field": "brand", "in": ["x" * 400] * 50})
        assert client.list(limit=5, after=first.next) == catalog.list(limit=5, after=first.next)
        shown = client.preview("grey cat", revealed=["cheap lemon"])
        assert shown.explanation == catalog.preview("grey cat", revealed=["cheap lemon"]).explanation
        np.testing.assert_allclose(client.represent(["grey cat"]), model.represent(["grey cat"]), atol=1e-6)
        assert client.about() == catalog.about()
        assert client.delete(name) == 1
        assert name not in catalog


def test_fields_filters_and_pages_pass_through_the_client(catalog):
    with running(catalog) as url, Client(url) as client:
        items = [
            {"id": f"n{n}", "text": f"grey cat {n}", "fields": {"price": n, "sale": n < 5}} for n in range(9)
        ]
        assert client.add(items).added == 9
        assert client.get("n3").fields == {"price": 3, "sale": True}
        wanted = {"and": [{"field": "price", "gte": 2}, {"not": {"field": "sale", "eq": False}}]}
        whole = client.search(["grey cat"], 9, filter=wanted).answers[0].hits
        assert {hit.id for hit in whole} == {"n2", "n3", "n4"}
        assert {hit.fields["price"] for hit in whole} == {2, 3, 4}
        pages = [
            client.search(["grey cat"], 2, filter=wanted, offset=start).answers[0].hits for start in (0, 2, 4)
        ]
        assert pages == [whole[:2], whole[2:], ()]
        assert client.update("n3", set_fields={"price": None, "brand": "x"}).fields == {
            "brand": "x",
            "sale": True,
        }
        assert client.update("n3", fields={"size": ["s"]}).fields == {"size": ["s"]}
        assert client.update("n3", tags=["t"]).fields == {"size": ["s"]}
        left = client.search(["grey cat"], 9, filter=wanted).answers[0].hits
        assert {hit.id for hit in left} == {"n2", "n4"}
        with pytest.raises(ConflictError):
            client.add([{"id": "n4", "text": "grey cat 4", "fields": {"price": 5}}])
        with pytest.raises(DataError, match="value of another type"):
            client.search(["grey cat"], filter={"field": "price", "eq": "2"})
        with pytest.raises(DataError, match="unknown operator 'below'"):
            client.search(["grey cat"], filter={"field": "price", "below": 2})


def test_the_client_writes_in_bulk(catalog):
    with running(catalog) as url, Client(url) as client:
        client.add([{"id": name, "text": "grey cat"} for name in "abc"])
        clicks = client.clicks([("a", "cheap lemon"), NewClick("b", "fresh bread", 5.5)])
        assert [(click.item, click.query) for click in clicks] == [("a", "cheap lemon"), ("b", "fresh bread")]
        assert clicks[1].at == 5.5
        with pytest.raises(NotFoundError):
            client.clicks([("a", "cheap lemon"), ("nobody", "cheap lemon")])
        assert catalog.get("a").clicks == 1
        assert client.update("a", add_tags=["red", "blue"], remove_tags=["red"]).tags == ("blue",)
        with pytest.raises(NotFoundError):
            client.delete(["a", "nobody"])
        assert client.delete(["a", "b", "nobody"], ignore_missing=True) == 2
        assert client.delete("nobody", ignore_missing=True) == 0
        assert "c" in catalog


def test_every_id_that_the_rules_allow_can_be_fetched_clicked_and_deleted(catalog):
    with running(catalog) as url, Client(url) as client:
        for name in UNUSUAL_IDS:
            exercise(client, name)


def test_errors_are_raised_as_the_types_of_the_catalog(catalog):
    with running(catalog, ServeSettings(limits={"max_body_bytes": 5000})) as url, Client(url) as client:
        client.add([NewItem("new", "grey cat")])
        with pytest.raises(NotFoundError, match="none"):
            client.get("none")
        with pytest.raises(ConflictError, match="new"):
            client.add([NewItem("new", "other")])
        with pytest.raises(DataError, match="queries"):
            client.search([])
        with pytest.raises(TooLargeError, match="5,000 bytes"):
            client.search(["x" * 6000])
        for invalid in (lambda: client.get("\ud800"), lambda: client.search(["\ud800"])):
            with pytest.raises(DataError, match="invalid Unicode"):
                invalid()


def test_the_service_is_told_how_long_the_client_waits(catalog):
    with running(catalog) as url:
        for timeout, told in ((60.0, "60"), (2.5, "2.5"), (0.25, "0.25"), (1e9, "999999"), (1e-7, "0")):
            with Client(url, timeout=timeout) as client:
                assert client._http.headers["prefer"] == f"wait={told}"
                client._http.timeout = 30
                if timeout < 0.1:
                    with pytest.raises(NotReadyError, match="Prefer: wait=SECONDS"):
                        client.search(["fresh bread"])
                else:
                    assert client.search(["fresh bread"]).answers


def test_the_client_sends_its_token(catalog):
    with running(catalog, ServeSettings(tokens={"read": READ, "write": WRITE})) as url:
        with Client(url) as stranger, pytest.raises(UnauthorizedError, match="Bearer"):
            stranger.about()
        with Client(url, READ) as reader:
            assert reader.search(["fresh bread"]).answers[0].hits
            with pytest.raises(ForbiddenError, match="may read but not write"):
                reader.add([NewItem("new", "grey cat")])
        with Client(url, WRITE) as writer:
            assert writer.add([NewItem("new", "grey cat")]).added == 1


def test_acknowledged_changes_survive_a_shutdown(catalog, model, tmp_path):
    with running(catalog) as url, Client(url) as client:
        for number in range(20):
            client.add([NewItem(f"new{number}", f"grey cat {number}")])
        click = client.click("new7", "fresh bread")
    with Client(url) as late:
        assert not late.ready()
    with Catalog.open(tmp_path / "catalog", model) as again:
        assert {f"new{number}" for number in range(20)} <= {item.id for item in again.list(limit=500).items}
        assert again.explain("new7").clicks[0].number == click.number


def test_addresses_and_tokens_that_cannot_work():
    with Client("http://127.0.0.1:9") as client:
        assert not client.ready()
        with pytest.raises(NotReadyError, match="does not respond"):
            client.about()
    for url in ("127.0.0.1:8765", "file:///etc/passwd", "http://"):
        with pytest.raises(ConfigError, match="address"):
            Client(url)
    with pytest.raises(ConfigError, match="invalid characters"):
        Client("http://127.0.0.1:9", "tökens")
