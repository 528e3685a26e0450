"""A catalog exported as a data set has the items and clicks that a plain record of its life has."""

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metaxc.catalog import Catalog, CatalogSettings, NewItem, migrate
from metaxc.data import Dataset, check_folder, read_folder, write_folder
from metaxc.emmett import Emmett
from metaxc.errors import ConfigError, DataError
from metaxc.irene import Irene

LIVE = [f"live {number}" for number in range(4)]
ITEMS = st.sampled_from(["i0", "i4", "i7", *LIVE])
QUERIES = st.sampled_from(["q0", "q1", "q20", "t0", "t5"])
TAGS = st.lists(st.sampled_from(["red", "green"]), max_size=2, unique=True).map(sorted)
WRITES = st.lists(
    st.tuples(st.just("add"), st.sampled_from(LIVE), TAGS)
    | st.tuples(st.just("click"), ITEMS, QUERIES)
    | st.tuples(st.just("undo"), ITEMS, st.none())
    | st.tuples(st.just("delete"), ITEMS, st.none())
    | st.tuples(st.just("tags"), ITEMS, TAGS)
    | st.tuples(st.just("text"), ITEMS, st.sampled_from(["i9", "i14"])),
    max_size=25,
)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["q0", "q1", "q2"]),
        st.sampled_from(["i0", "i1", "i7"]),
        st.integers(0, 2_000_000_000).map(lambda quarter: quarter / 4),
        st.integers(1, 5),
    ),
    min_size=1,
    max_size=12,
)


def events_of(dataset):
    """How many events each (query text, item, time) has."""
    log, found = dataset.train, Counter()
    times = [None] * len(log.groups.pairs) if log.times is None else log.times.tolist()
    for pair, time, count in zip(log.groups.pairs, times, log.groups.counts.tolist(), strict=True):
        query, item = log.queries.texts[log.pair_rows[pair]], dataset.items.ids[log.clicks.indices[pair]]
        found[query, item, time] += count
    return found


def training_data(model, events, *, dated=True, first_seen=None):
    items = dict(zip(model.items.ids, model.items.texts, strict=True))
    return Dataset.of(
        items,
        {f"query {text}": text for text in ("q0", "q1", "q2")},
        [(f"query {query}", item) for query, item, _, _ in events],
        times=[time for *_, time, _ in events] if dated else None,
        counts=[count for *_, count in events],
        first_seen=None if first_seen is None else dict.fromkeys(items, first_seen),
    )


def live(catalog, writes):
    """Write to a catalog; returns text and tags by item, and the item, query and time of each click by number."""
    items = {item.id: [item.text, list(item.tags)] for item in catalog.list(limit=1000).items}
    clicks = {}
    for kind, item, value in writes:
        if kind == "add" and item not in items:
            catalog.add([NewItem(item, "i4", tuple(value))])
            items[item] = ["i4", value]
        elif item not in items or kind == "add":
            continue
        elif kind == "click":
            click = catalog.click(item, value)
            clicks[click.number] = (item, value, click.at)
        elif kind == "undo":
            last = next((number for number in reversed(clicks) if clicks[number][0] == item), None)
            if last is not None:
                catalog.undo(last)
                del clicks[last]
        elif kind == "delete":
            catalog.delete([item])
            del items[item]
            clicks = {number: click for number, click in clicks.items() if click[0] != item}
        elif kind == "tags":
            catalog.update(item, tags=value)
            items[item][1] = value
        else:
            catalog.update(item, text=value)
            items[item][0] = value
    return items, clicks


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=EVENTS, writes=WRITES)
def test_the_export_has_the_items_and_clicks_of_the_data_and_of_the_catalog(model, events, writes):
    with TemporaryDirectory() as place, Catalog.create(Path(place) / "catalog", model) as catalog:
        data, out = Path(place) / "data", Path(place) / "out"
        write_folder(training_data(model, events), data)
        items, clicks = live(catalog, writes)
        expected = Counter({(query, item, at): 1 for item, query, at in clicks.values()})
        for query, item, time, count in events:
            if item in items:
                expected[query, item, time] += count
        if not expected:
            with pytest.raises(DataError, match="no clicks to train on"):
                catalog.export_dataset(out, training_data=data)
            return
        export = catalog.export_dataset(out, training_data=data)
        found = read_folder(out)
        assert events_of(found) == expected
        texts, tags = found.items.texts, found.items.tags or [()] * len(found.items)
        assert {
            id: [text, list(its)] for id, text, its in zip(found.items.ids, texts, tags, strict=True)
        } == items
        assert export.live_clicks == len(clicks)
        assert export.training_clicks == sum(count for _, item, _, count in events if item in items)
        assert found.fingerprint == export.dataset.fingerprint
        assert not [problem for problem in check_folder(out).problems if problem.severity == "error"]
        # Queries of the training data keep their ids.
        ids = dict(zip(found.train.queries.texts, found.train.queries.ids, strict=True))
        assert all(id == f"query {text}" for text, id in ids.items() if text in ("q0", "q1", "q2"))


def test_a_data_set_without_a_life_is_exported_as_it_was(folder, model, tmp_path):
    data = training_data(
        model, [("q0", "i0", 5.5, 2), ("q1", "i1", 7.0, 1), ("q2", "i7", 7.0, 1)], first_seen=3
    )
    write_folder(data, tmp_path / "data")
    with Catalog.create(folder, model) as catalog:
        catalog.export_dataset(tmp_path / "out", training_data=tmp_path / "data")
    found = read_folder(tmp_path / "out")
    assert found.fingerprint == data.fingerprint
    assert found.items.first_seen.tolist() == [3] * len(data.items)


def test_without_training_data_only_the_recorded_clicks_are_there(catalog, tmp_path):
    first, second = catalog.click("i0", "q0"), catalog.click("i0", "q0")
    export = catalog.export_dataset(tmp_path / "out")
    found = read_folder(tmp_path / "out")
    assert sum(events_of(found).values()) == 2
    assert found.train.times.tolist() == sorted({first.at, second.at})
    assert found.train.queries.ids == ["live-1"]
    assert export.trained_without_clicks == 159  # 160 are observed
    assert found.items.first_seen[found.items.row_of["i0"]] == int(catalog.get("i0").created)


def test_queries_are_the_same_ignoring_case_and_white_space(catalog, tmp_path, monkeypatch):
    encoder = type(catalog.model.encoder)
    monkeypatch.setattr(
        encoder, "encode_queries", lambda self, texts: np.ones((len(texts), self.dim), np.float32)
    )
    for query in ("Red  Shoes", "red shoes", "other"):
        catalog.click("i0", query)
    catalog.export_dataset(tmp_path / "out")
    assert read_folder(tmp_path / "out").train.queries.texts == ["Red  Shoes", "other"]


def test_undated_training_data_make_an_undated_data_set(catalog, model, tmp_path):
    write_folder(training_data(model, [("q0", "i0", 0, 3)], dated=False), tmp_path / "data")
    catalog.click("i0", "q0")
    export = catalog.export_dataset(tmp_path / "out", training_data=tmp_path / "data")
    assert export.undated
    assert events_of(read_folder(tmp_path / "out")) == {("q0", "i0", None): 4}


def test_an_export_is_no_training_data_of_its_own_catalog(catalog, other_model, folder, tmp_path):
    catalog.click("i0", "q0")
    catalog.export_dataset(tmp_path / "first")
    catalog.close()
    migrate(folder, other_model)
    with Catalog.open(folder, other_model) as migrated:
        with pytest.raises(DataError, match="count twice"):
            migrated.export_dataset(tmp_path / "second", training_data=tmp_path / "first")
        migrated.export_dataset(tmp_path / "second")
    assert events_of(read_folder(tmp_path / "second")) == events_of(read_folder(tmp_path / "first"))
    with Catalog.create(tmp_path / "new", other_model, settings=CatalogSettings()) as new:
        new.export_dataset(tmp_path / "third", training_data=tmp_path / "first")


def test_neither_the_catalog_nor_the_training_data_are_overwritten(catalog, model, folder, tmp_path):
    catalog.click("i0", "q0")
    write_folder(training_data(model, [("q0", "i0", 0, 3)]), tmp_path / "data")
    for place in (folder, folder / "inside", tmp_path / "data"):
        with pytest.raises(ConfigError, match="nothing was deleted"):
            catalog.export_dataset(place, training_data=tmp_path / "data", overwrite=True)
    catalog.export_dataset(tmp_path / "out")
    catalog.export_dataset(tmp_path / "out", overwrite=True)
    facts = json.loads((tmp_path / "out" / "export.json").read_text())
    assert facts["catalog"] == catalog.store.uuid
    assert facts["clicks of the catalog"] == 1


def test_a_model_is_trained_on_the_export(shop, tmp_path):
    """Items and clicks that the first model has not seen are in the second one."""
    write_folder(shop, tmp_path / "data")
    options = {"encoder": "static", "adapter": {"epochs": 1}, "folds": 0}
    first = Irene(**options).fit(shop.with_novel(["lion-wild"]))
    with Catalog.create(tmp_path / "catalog", first) as catalog:
        catalog.add([NewItem("zebra", "a striped zebra", ("new",), {"price": 19.9, "sizes": ["s", "m"]})])
        for query in ("fresh grass", "dry grass", "fresh hay"):
            catalog.click("zebra", query)
        catalog.export_dataset(tmp_path / "out", training_data=tmp_path / "data")
    found = read_folder(tmp_path / "out")
    second = Irene(**options).fit(found.with_novel(["lion-wild"]))
    observed = {second.items.ids[row] for row in second.observed.tolist()}
    assert "zebra" in observed
    row = second.items.row_of["zebra"]
    assert second.items.tags[row] == ("new",)
    assert second.items.fields[row] == {"price": 19.9, "sizes": ["s", "m"]}
    second.save(tmp_path / "model")
    with Catalog.create(tmp_path / "next", Emmett.load(tmp_path / "model")) as following:
        assert following.get("zebra").fields == {"price": 19.9, "sizes": ["s", "m"]}
