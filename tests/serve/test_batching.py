"""Requests that wait together, and what happens to those that cannot."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient
from served import HOME, add

from metaxc.catalog.catalog_errors import ConflictError, NotFoundError
from metaxc.catalog.records import AddResult, NewItem
from metaxc.serve.app import make_app
from metaxc.serve.batching import Job, Lane
from metaxc.serve.http_errors import BusyError, NotReadyError
from metaxc.serve.prometheus_metrics import Metrics
from metaxc.serve.searching import Search, Searching
from metaxc.serve.serve_settings import ServeSettings
from metaxc.serve.writing import Add, ClickOn, Delete, Undo, Update, Writing, runs


class Held:
    """Work that waits to be let go, and remembers its batches."""

    def __init__(self):
        self.begun, self.go_on, self.batches = threading.Event(), threading.Event(), []

    def __call__(self, jobs):
        self.batches.append([job.asked for job in jobs])
        self.begun.set()
        assert self.go_on.wait(30)
        return [job.asked * 10 for job in jobs]


@pytest.fixture
def held():
    return Held()


def test_what_waits_is_worked_on_together_up_to_a_batch(held):
    lane = Lane("count", held, most_waiting=10, batch=3)
    first = lane.put(1)
    assert held.begun.wait(30)
    rest = [lane.put(number) for number in (2, 3, 4, 5)] + [lane.put(6, weight=9), lane.put(7)]
    assert len(lane) == 6
    held.go_on.set()
    assert [job.answer.result(30) for job in (first, *rest)] == [10, 20, 30, 40, 50, 60, 70]
    assert held.batches == [[1], [2, 3, 4], [5], [6], [7]]
    lane.close()


def test_a_full_queue_refuses_and_those_who_left_make_room(held):
    lane = Lane("count", held, most_waiting=2)
    lane.put(1)
    assert held.begun.wait(30)
    waiting = [lane.put(2), lane.put(3)]
    with pytest.raises(BusyError, match="2 waiting to count"):
        lane.put(4)
    assert waiting[0].answer.cancel()
    late = lane.put(5)
    held.go_on.set()
    assert late.answer.result(30) == 50
    assert held.batches == [[1], [3], [5]]
    lane.close()


def test_closing_finishes_what_waits_and_takes_nothing_more(held):
    lane = Lane("count", held, most_waiting=10)
    jobs = [lane.put(number) for number in range(4)]
    held.go_on.set()
    lane.close()
    assert [job.answer.result(0) for job in jobs] == [0, 10, 20, 30]
    with pytest.raises(NotReadyError, match="closing"):
        lane.put(9)


def test_a_request_not_reached_in_time_is_dropped_before_it_begins(held):
    lane = Lane("count", held, most_waiting=10)

    async def ask():
        first = asyncio.create_task(lane.ask(1, timeout=0.01))  # begun: its answer comes, however late
        await asyncio.to_thread(held.begun.wait, 30)
        with pytest.raises(NotReadyError, match="nothing was done"):
            await lane.ask(2, timeout=0.01)
        left = asyncio.create_task(lane.ask(3, timeout=30))
        gone = asyncio.create_task(asyncio.sleep(0))
        with pytest.raises(NotReadyError):
            await lane.ask(4, timeout=30, gone=gone)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        held.go_on.set()
        return await first

    assert asyncio.run(ask()) == 10
    lane.close()
    assert held.batches == [[1]]


def test_a_failed_batch_answers_everybody_and_the_lane_goes_on():
    def fails(jobs):
        if jobs[0].asked == "bad":
            raise RuntimeError("broken")
        return [job.asked for job in jobs]

    lane = Lane("fail", fails, most_waiting=10)
    with pytest.raises(RuntimeError, match="broken"):
        lane.put("bad").answer.result(30)
    assert lane.put("good").answer.result(30) == "good"
    lane.close()


def jobs_of(*asked):
    return [Job(one) for one in asked]


def quiet():
    return Metrics(lambda: None, dict)


def test_searches_of_one_batch_get_their_own_k_and_filters(catalog):
    catalog.add([NewItem("new", "grey cat", ("pets",)), NewItem("other", "grey dog", ("pets", "big"))])
    asked = [
        Search(("fresh bread", "cheap lemon"), 3),
        Search(("raw melon",), 7, tags=("pets",)),
        Search(("fresh bread",), 50),
        Search(("dried plum",), 2, tags=("pets", "big")),
        Search(("dried plum",), 2, tags=("big", "pets")),
        Search(("fresh bread",), 4, states=("novel",)),
        Search(("sweet pear",), 1, states=("observed", "novel")),
    ]
    searching = Searching(catalog, quiet(), recall_rate=0)
    answers = searching(jobs_of(*asked))
    for one, answer in zip(asked, answers, strict=True):
        expected = [
            catalog.search([query], one.k, tags=one.tags, states=one.states)[0] for query in one.queries
        ]
        assert [[hit.id for hit in line] for line in answer.hits] == [
            [hit.id for hit in line] for line in expected
        ]
        assert [hit.score for line in answer.hits for hit in line] == pytest.approx(
            [hit.score for line in expected for hit in line], abs=1e-5
        )
    searching.sampling.close()
    catalog.close()


def test_a_bad_search_fails_alone(catalog):
    searching = Searching(catalog, quiet(), recall_rate=0)
    good, bad, also = searching(
        jobs_of(Search(("fresh bread",), 2), Search(("",), 2), Search(("raw melon",), 1))
    )
    assert [len(line) for line in good.hits] == [2]
    assert "query is empty" in str(bad)
    assert [len(line) for line in also.hits] == [1]
    searching.sampling.close()
    catalog.close()


def items(*names, text="grey cat"):
    return Add(tuple(NewItem(name, f"{text} {name}") for name in names))


def test_adds_that_wait_together_are_one_transaction_and_each_has_its_count(catalog):
    catalog.add([NewItem("a", "grey cat a")])
    before = catalog.about().sequence
    answers = Writing(catalog, quiet())(jobs_of(items("b", "c"), items("a", "d"), items("e")))
    assert answers == [AddResult(2, 0), AddResult(1, 1), AddResult(1, 0)]
    assert catalog.about().sequence == before + 1
    assert {"b", "c", "d", "e"} <= {item.id for item in catalog.list(limit=500).items}
    catalog.close()


def test_a_bad_write_fails_alone_and_the_order_is_kept(catalog):
    answers = Writing(catalog, quiet())(
        jobs_of(
            items("a"),
            items("b", "a", text="other"),  # conflicts with the first: neither a nor b of it comes in
            items("c"),
            ClickOn("c", "fresh bread"),
            ClickOn("none", "fresh bread"),
            ClickOn("c", "cheap lemon"),
            Update("c", None, ("pets",)),
            Delete("a"),
            Delete("a"),
            Delete("c"),
            items("a", text="again"),
        )
    )
    assert answers[0] == answers[2] == answers[10] == AddResult(1, 0)
    assert isinstance(answers[1], ConflictError)
    assert [answers[3].item, answers[5].item] == ["c", "c"]
    assert isinstance(answers[4], NotFoundError)
    assert (answers[6].clicks, answers[6].tags) == (2, ("pets",))
    assert (answers[7], answers[9]) == (1, 1)
    assert isinstance(answers[8], NotFoundError)
    assert "b" not in catalog
    assert "c" not in catalog
    assert catalog.get("a").text == "again a"
    catalog.close()


def test_what_may_share_a_transaction():
    asked = [
        items("a"),
        items("b"),
        items("a"),
        ClickOn("a", "q"),
        ClickOn("a", "q"),
        Undo(1),
        Undo(2),
        Delete("a"),
    ]
    assert [len(run) for run in runs(jobs_of(*asked))] == [2, 1, 2, 1, 1, 1]
    assert [job.asked for run in runs(jobs_of(*asked)) for job in run] == asked
    assert list(runs([])) == []


def test_many_clients_at_once_each_get_their_own_answer(catalog, shop):
    queries = shop.train.queries.texts[:40]
    expected = {
        query: [hit.id for hit in line]
        for query, line in zip(queries, catalog.search(queries, 5), strict=True)
    }
    with TestClient(make_app(catalog), base_url=HOME) as http, ThreadPoolExecutor(16) as pool:

        def ask(place):
            query, k = queries[place % len(queries)], 1 + place % 5
            answer = http.post("/v1/search", json={"queries": [query], "k": k}).json()["answers"][0]
            return query, k, [hit["id"] for hit in answer["hits"]]

        for query, k, found in pool.map(ask, range(120)):
            assert found == expected[query][:k]
        added = list(
            pool.map(lambda place: add(http, f"new{place}", f"grey cat {place}").status_code, range(30))
        )
    assert added == [200] * 30


def test_a_full_lane_is_429_and_what_was_taken_is_answered(catalog, monkeypatch):
    entered, go_on = threading.Event(), threading.Event()
    add_for_real = catalog.add

    def slow(items):
        entered.set()
        assert go_on.wait(30)
        return add_for_real(items)

    with TestClient(make_app(catalog, ServeSettings(most_queue=2)), base_url=HOME) as http:
        monkeypatch.setattr(catalog, "add", slow)
        lane = http.app.state.service.lanes["write"]
        with ThreadPoolExecutor(3) as pool:
            taken = [pool.submit(add, http, "first", "grey cat")]
            assert entered.wait(30)
            waiting = threading.Event()
            put = lane.put

            def counted(*args):
                job = put(*args)
                if len(lane) == 2:
                    waiting.set()
                return job

            monkeypatch.setattr(lane, "put", counted)
            taken += [pool.submit(add, http, f"w{place}", "grey cat") for place in range(2)]
            assert waiting.wait(30)
            refused = add(http, "late", "grey cat")
            unread = [http.post("/v1/items", content=b"no JSON"), http.delete("/v1/items/unknown")]
            search = http.post("/v1/search", json={"queries": ["grey cat"]})
            unknown = http.get("/v1/items/unknown")
            go_on.set()
        assert refused.status_code == 429
        assert [one.status_code for one in unread] == [429, 429]  # before anything of them is looked at
        assert (search.status_code, unknown.status_code) == (200, 404)  # other lanes have room
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["expected"] == "at most 2"
        assert [one.result().status_code for one in taken] == [200] * 3
        assert http.get("/v1/items/late").status_code == 404
        assert http.get("/v1/items/w1").status_code == 200
