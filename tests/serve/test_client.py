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
        assert client.list(limit=5, after=first.next) == catalog.list(limit=5, after=first.next)
        shown = client.preview("grey cat", revealed=["cheap lemon"])
        assert shown.explanation == catalog.preview("grey cat", revealed=["cheap lemon"]).explanation
        np.testing.assert_allclose(client.represent(["grey cat"]), model.represent(["grey cat"]), atol=1e-6)
        assert client.about() == catalog.about()
        assert client.delete(name) == 1
        assert name not in catalog


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
