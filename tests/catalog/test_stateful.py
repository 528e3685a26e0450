"""Random sequences of operations: the catalog always answers as a plain dict would."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from metaxc.catalog import Catalog, CatalogSettings, ConflictError, NewItem, NotFoundError

IDS = st.sampled_from([f"item {number}" for number in range(6)])
TEXTS = st.sampled_from(["i4", "i9", "i14", "i19"])
CLICKED_QUERIES = st.sampled_from(["q0", "q20", "q40", "q60"])
FIELDS = st.fixed_dictionaries({}, optional={"price": st.sampled_from([1, 2.5]), "sale": st.booleans()})
TAGS = st.lists(st.sampled_from(["red", "green", "blue"]), max_size=2)


class CatalogMachine(RuleBasedStateMachine):
    """`self.known` maps an id to its text, its tags, its clicks by number, and its fields."""

    model = None

    @initialize()
    def begin(self):
        self.place = Path(tempfile.mkdtemp())
        self.catalog = Catalog.create(
            self.place / "catalog", self.model, settings=CatalogSettings(observe_after=2)
        )
        self.known, self.snapshot_state = {}, None

    def teardown(self):
        self.catalog.close()
        shutil.rmtree(self.place)

    @rule(name=IDS, text=TEXTS, tags=TAGS, fields=FIELDS)
    def add(self, name, text, tags, fields):
        tags = sorted(set(tags))
        there = self.known.get(name)
        if there is not None and (there[0], there[1], there[3]) != (text, tags, fields):
            with pytest.raises(ConflictError):
                self.catalog.add([NewItem(name, text, tuple(tags), fields)])
            return
        added = self.catalog.add([NewItem(name, text, tuple(tags), fields)])
        assert added.added == (there is None)
        self.known.setdefault(name, [text, tags, {}, fields])

    @rule(name=IDS, text=TEXTS | st.none(), tags=TAGS | st.none(), fields=FIELDS | st.none())
    def update(self, name, text, tags, fields):
        if name not in self.known:
            with pytest.raises(NotFoundError):
                self.catalog.update(name, text, tags, fields=fields)
            return
        self.catalog.update(name, text, tags, fields=fields)
        if fields is not None:
            self.known[name][3] = fields
        if text is not None:
            self.known[name][0] = text
        if tags is not None:
            self.known[name][1] = sorted(set(tags))

    @rule(name=IDS)
    def delete(self, name):
        if name not in self.known:
            with pytest.raises(NotFoundError):
                self.catalog.delete([name])
            return
        self.catalog.delete([name])
        del self.known[name]

    @rule(name=IDS, query=CLICKED_QUERIES)
    def click(self, name, query):
        if name in self.known:
            click = self.catalog.click(name, query)
            self.known[name][2][click.number] = query

    @rule(name=IDS)
    def undo(self, name):
        if name in self.known and self.known[name][2]:
            number, _ = self.known[name][2].popitem()
            self.catalog.undo(number)

    @rule()
    def open_again(self):
        self.catalog.close()
        self.catalog = Catalog.open(self.place / "catalog", self.model)

    @rule()
    def snapshot(self):
        self.catalog.snapshot(self.place / "snapshot", overwrite=True)
        self.snapshot_state = {
            name: [text, tags, dict(clicks), fields]
            for name, (text, tags, clicks, fields) in self.known.items()
        }

    @rule()
    def restore(self):
        if self.snapshot_state is not None:
            self.catalog.close()
            Catalog.restore(self.place / "snapshot", self.place / "catalog", overwrite=True)
            self.catalog = Catalog.open(self.place / "catalog", self.model)
            self.known = {
                name: [text, tags, dict(clicks), fields]
                for name, (text, tags, clicks, fields) in self.snapshot_state.items()
            }

    @invariant()
    def the_catalog_equals_the_dict(self):
        page = self.catalog.list(after=str(len(self.model.items)), limit=100)
        shown = {
            item.id: (item.text, list(item.tags), item.clicks, item.state, item.fields) for item in page.items
        }
        states = ("novel", "clicked", "observed")
        assert shown == {
            name: (text, tags, len(clicks), states[min(len(clicks), 2)], fields)
            for name, (text, tags, clicks, fields) in self.known.items()
        }
        assert len(self.catalog) == len(self.model.items) + len(self.known)
        vectors = self.model.encode_queries(["q0", "q40"])
        keys, scores = self.catalog.index_search(vectors, len(self.catalog))
        assert (keys >= 0).all()
        rows = self.catalog.store.fetch_all("SELECT key, vector FROM items ORDER BY key")
        held = np.stack([np.frombuffer(row[1], np.float32) for row in rows])
        np.testing.assert_allclose(np.sort(vectors @ held.T, axis=1)[:, ::-1], scores, atol=1e-5)
        red = {hit.id for hit in self.catalog.search(vectors[:1], 300, tags=["red"])[0]}
        assert red == {name for name, (_, tags, _, _) in self.known.items() if "red" in tags}
        wanted = {"or": [{"field": "price", "gt": 2}, {"field": "sale", "eq": True}]}
        found = {hit.id for hit in self.catalog.search(vectors[:1], 300, filter=wanted)[0]}
        own = {name: fields for name, (*_, fields) in self.known.items()}
        assert found == {name for name in own if own[name].get("price", 0) > 2 or own[name].get("sale")}


def test_a_catalog_answers_as_a_plain_dict_would(model):
    CatalogMachine.model = model
    run_state_machine_as_test(
        CatalogMachine,
        settings=settings(
            max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
