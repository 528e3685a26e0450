"""An open catalog moves to another model while it is written to, and loses nothing."""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metaxc.catalog import Catalog, CatalogError, CatalogSettings, LockedError, NewItem, migrate, model_switch
from metaxc.catalog.catalog_folder import CatalogFolder
from metaxc.catalog.generation_record import STALE, read_previous
from metaxc.catalog.migration import Migration
from metaxc.catalog.model_switch import ModelSwitch
from metaxc.catalog.schema import decode_vector
from metaxc.errors import MetaxcError

NEW = NewItem("new", "i4", ("red",), {"price": 19.9, "sizes": ["s", "m"]})
CONTENT = (
    "SELECT key, id, text, tags, fields, clicks, created, updated FROM items ORDER BY key",
    "SELECT number, key, query, at FROM clicks ORDER BY number",
    "SELECT number, text FROM queries ORDER BY number",
)
COMPUTED = (
    "SELECT key, state, trained, since IS NULL FROM items ORDER BY key",
    "SELECT embedding, classifier FROM items ORDER BY key",
    "SELECT embedding FROM clicks ORDER BY number",
    "SELECT key, clicks FROM click_sums ORDER BY key",
)


def content(store):
    """Everything that does not depend on the model."""
    return [store.fetch_all(statement) for statement in CONTENT]


def vectors(store):
    return np.stack(
        [decode_vector(row[0]) for row in store.fetch_all("SELECT vector FROM items ORDER BY key")]
    )


def assert_same_computed(found, expected):
    """Everything that the model computes but the vectors; embeddings depend on the size of a batch in the last bit."""
    for statement in COMPUTED:
        for one, other in zip(found.fetch_all(statement), expected.fetch_all(statement), strict=True):
            for value, wanted in zip(one, other, strict=True):
                if isinstance(wanted, bytes):
                    np.testing.assert_allclose(decode_vector(value), decode_vector(wanted), atol=1e-5)
                else:
                    assert value == wanted


def switched(catalog, model, **options):
    switch = ModelSwitch(catalog, model, **options)
    switch.build()
    new = switch.finish()
    catalog.close()
    switch.remove_unused()
    return new


OPERATIONS = st.one_of(
    st.tuples(
        st.just("add"), st.sampled_from("abcd"), st.sampled_from(["i4", "i9"]), st.sampled_from(["", "red"])
    ),
    st.tuples(st.just("click"), st.sampled_from("abcd"), st.sampled_from(["q0", "q20", "q40"])),
    st.tuples(st.just("update"), st.sampled_from("abcd"), st.sampled_from(["i4", "i9", "i14"])),
    st.tuples(st.just("delete"), st.sampled_from(["a", "b", "c", "d", "i0", "i7"])),
    st.tuples(st.just("undo"), st.integers(1, 8)),
)


def apply(catalog, operation):
    """Write, if that is possible."""
    kind, *given = operation
    with suppress(MetaxcError):
        if kind == "add":
            catalog.add([NewItem(given[0], given[1], tuple(filter(None, given[2:])))])
        elif kind == "delete":
            catalog.delete(given)
        else:
            getattr(catalog, kind)(*given)


@given(
    before=st.lists(OPERATIONS, max_size=6),
    during=st.lists(st.tuples(st.integers(0, 30), OPERATIONS), max_size=14),
    few=st.sampled_from([0, 1000]),
)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_writes_at_any_point_of_a_build_are_in_the_new_generation(
    world, model, other_model, before, during, few
):
    """A write happens before each encoding and after each block: between what a build reads and what it writes."""
    place = Path(tempfile.mkdtemp())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(model_switch, "SWITCH_BLOCK", 48)
        patched.setattr(model_switch, "FEW_CHANGES", few)
        catalog = Catalog.create(
            place / "catalog", model, settings=CatalogSettings(observe_after=2), queries=["t0", "t1"]
        )
        apply(catalog, ("add", "a", "i4", "red"))
        for operation in before:
            apply(catalog, operation)
        waiting, passed, stale = sorted(during, key=lambda one: one[0]), [0], []

        def pass_point(*_):
            passed[0] += 1
            while waiting and waiting[0][0] < passed[0]:
                apply(catalog, waiting.pop(0)[1])

        encode, complete = type(world.encoder).encode_items, Migration.complete

        def encode_items(self, texts):
            if len(texts) > 8:  # a block of the build, not one of these writes
                pass_point()
            return encode(self, texts)

        def watched(migration, folder):
            stale.append(migration._new_metadata().get(STALE) == "yes")
            complete(migration, folder)

        patched.setattr(type(world.encoder), "encode_items", encode_items)
        patched.setattr(Migration, "complete", watched)
        switch = ModelSwitch(catalog, other_model, progress=pass_point)
        switch.build()
        for _, operation in waiting:  # the rest after the build, left to the last round
            apply(catalog, operation)
        new = switch.finish()
        try:
            assert content(new.store) == content(catalog.store)
            new.store.verify()
            assert sorted(hit.id for hit in new.search(["t0"], 300)[0]) == sorted(
                item.id for item in catalog.list(limit=1000).items
            )
            catalog.close()
            shutil.copytree(place / "catalog", place / "copy")
            CatalogFolder(place / "copy").switch(place / "copy" / catalog.store.folder.name)
            assert migrate(place / "copy", other_model)
            with Catalog.open(place / "copy", other_model, read_only=True) as expected:
                assert_same_computed(new.store, expected.store)
                if not stale[
                    0
                ]:  # else items that were observed at the very end inform only what is written later
                    np.testing.assert_allclose(vectors(new.store), vectors(expected.store), atol=1e-5)
        finally:
            new.close()
            shutil.rmtree(place)


def test_items_that_become_observed_during_a_build_inform_all_items(catalog, other_model):
    """The vector of `twin` is written before `new` becomes observed, and is computed again."""
    catalog.add([NEW, NewItem("twin", "i4")])
    written = []

    def click_once(done, total):
        if done == total and not written:
            written.append(catalog.clicks([("new", query) for query in ("q0", "q1", "q2")]))

    new = switched(catalog, other_model, progress=click_once)
    with new:
        told = new.explain("twin")
        assert "new" in {one.id for one in told.explanation.neighbours}
        assert told.current
        assert new.get("new").state == "observed"


def test_after_the_switch_the_new_catalog_writes_and_the_old_one_refuses(catalog, folder, model, other_model):
    catalog.add([NEW])
    switch = ModelSwitch(catalog, other_model)
    switch.build()
    new = switch.finish()
    assert [hit.id for hit in catalog.search(["t0"], 3)[0]]  # searches under way end on the old one
    with pytest.raises(CatalogError, match="switched to another model"):
        catalog.add([NewItem("late", "i9")])
    catalog.close()
    with pytest.raises(LockedError):
        Catalog.open(folder, other_model)
    new.add([NewItem("later", "i9")])
    new.close()
    with Catalog.open(folder, other_model) as again:
        assert "later" in again
        assert "late" not in again
    with pytest.raises(CatalogError, match="another model"):
        Catalog.open(folder, model)


def test_keys_and_click_numbers_of_deleted_items_are_not_given_out_again(catalog, other_model):
    catalog.add([NEW])
    number = catalog.click("new", "q0").number
    key = catalog.store.fetch_all("SELECT key FROM items WHERE id = 'new'")[0][0]
    catalog.delete(["new"])
    with switched(catalog, other_model) as new:
        new.add([NEW])
        assert new.click("new", "q0").number == number + 1
        assert new.store.fetch_all("SELECT key FROM items WHERE id = 'new'") == [(key + 1,)]


def test_switching_back_keeps_what_was_written_meanwhile_and_builds_nothing_again(
    catalog, folder, model, other_model
):
    catalog.add([NEW, NewItem("gone", "i9")])
    before = catalog.search(["t0"], 5), catalog.search(["t30"], 5)
    new = switched(catalog, other_model, model_folder=Path("b"), old_model_folder=Path("a"))
    previous = read_previous(new.store)
    assert (previous.model, previous.folder) == (model.fingerprint, str(Path("a").resolve()))
    kept = folder / previous.generation
    assert kept.is_dir()
    new.delete(["gone"])
    new.add([NewItem("added", "i4")])
    new.click("new", "q20")
    done = []
    with switched(new, model, progress=lambda *counts: done.append(counts)) as back:
        assert done == []
        assert back.store.folder == kept
        assert content(back.store) == content_of_closed(new)
        assert "gone" not in back
        assert back.explain("added").current
        assert [one.id for one in back.search(["t30"], 5)[0]] == [one.id for one in before[1][0]]
        assert read_previous(back.store).model == other_model.fingerprint
    assert len(list(folder.glob("gen-*"))) == 2


def content_of_closed(catalog):
    from metaxc.catalog.store import Store

    with Store(catalog.store.folder, read_only=True) as store:
        return content(store)


def test_an_abandoned_switch_leaves_the_catalog_as_it_is_and_is_continued_by_the_next(
    catalog, folder, model, other_model, monkeypatch
):
    monkeypatch.setattr(model_switch, "SWITCH_BLOCK", 48)
    catalog.add([NEW])
    before = catalog.search(["t0", "t4"], 300)

    def stop(done, total):
        raise KeyboardInterrupt

    switch = ModelSwitch(catalog, other_model, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        switch.build()
    switch.abandon()
    assert catalog.search(["t0", "t4"], 300) == before
    catalog.delete(["i0", "i1", "new"])
    catalog.add(
        [NEW, NewItem("i1", "i4")]
    )  # with other keys than before; the first i1 is in the new generation
    done = []
    with switched(catalog, other_model, progress=lambda count, total: done.append(count)) as new:
        assert done[0] > 48
        assert "i0" not in new
        assert (new.get("new").tags, new.get("i1").text) == (("red",), "i4")


def test_a_catalog_is_not_switched_to_the_model_it_has(catalog, model):
    with pytest.raises(CatalogError, match="this model already"):
        ModelSwitch(catalog, model)


def test_a_switch_that_cannot_be_noted_leaves_the_old_generation_in_use(
    catalog, folder, other_model, monkeypatch
):
    catalog.add([NEW])
    switch = ModelSwitch(catalog, other_model)
    switch.build()

    def full(self, generation):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(CatalogFolder, "activate", full)
        with pytest.raises(OSError, match="No space"):
            switch.finish()
    catalog.add([NewItem("after", "i9")])
    assert catalog.folder.current() == catalog.store.folder
    new = switch.finish()  # again, now that there is space
    catalog.close()
    with new:
        assert "after" in new


def test_writes_that_are_faster_than_the_new_model_end_the_build(catalog, other_model, monkeypatch):
    monkeypatch.setattr(model_switch, "MOST_ROUNDS", 5)
    monkeypatch.setattr(model_switch, "FEW_CHANGES", 0)
    numbers = iter(range(1000))

    def write(done, total):
        catalog.add([NewItem(f"added{next(numbers)}", "i4")])

    switch = ModelSwitch(catalog, other_model, progress=write)
    with pytest.raises(CatalogError, match="faster than the new model"):
        switch.build()
    switch.abandon()
