import threading

from metaxc.catalog import NewItem

NEW = NewItem("new", "i4", ("red", "blue"))


def test_catching_up_with_a_write_does_not_read_the_unchanged_items(catalog):
    """Counted in steps of SQLite's virtual machine: reading each item would take at least three."""
    steps = []
    catalog.store._reader.set_progress_handler(lambda: steps.append(1) and 0, 1)
    catalog.add([NEW])
    catalog.search(["t0"], 5)
    catalog.store._reader.set_progress_handler(None, 1)
    assert 0 < len(steps) < 2 * len(catalog)


def test_a_search_does_not_wait_for_a_newly_observed_item_to_inform_others(catalog, monkeypatch):
    catalog.add([NEW])
    base, lifecycle = catalog.about().base, catalog.follower.lifecycle
    entered, go_on, use_observed = threading.Event(), threading.Event(), lifecycle.use_observed

    def slow(rows, *, extend):
        entered.set()
        assert go_on.wait(30)
        use_observed(rows, extend=extend)

    monkeypatch.setattr(lifecycle, "use_observed", slow)
    clicking = threading.Thread(target=catalog.clicks, args=([("new", f"t{place}") for place in range(3)],))
    clicking.start()
    assert entered.wait(30)
    found = [hit.state for hit in catalog.search(["t0"], 300)[0] if hit.id == "new"]
    waited = lifecycle.pipeline is lifecycle.model.pipeline
    go_on.set()
    clicking.join()
    assert found == ["observed"]
    assert waited
    assert catalog.about().base == base + 1
