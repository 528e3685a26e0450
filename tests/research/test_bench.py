"""Benchmarks: what is done is not done again, what fails is told, and the rows say what they should."""

import importlib.util
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from metaxc.research.bench.makers import with_vectors
from metaxc.research.bench.oneshot import reveal
from metaxc.research.bench.ratio import RATIOS, with_ratio
from metaxc.research.report.bench_section import read_bench
from scipy.sparse import csr_array

from metaxc.data import Dataset
from metaxc.errors import ConfigError, DataError
from metaxc.evaluation import evaluate, model_search
from metaxc.generators import Episode, GeneratorTraining, ResidualTransformer, train_generator
from metaxc.irene import Irene, IreneConfig
from metaxc.irene.model_parts import ConfiguredParts
from metaxc.research.bench import (
    TABLES,
    Context,
    Outcome,
    Results,
    Row,
    Table,
    ablations,
    chosen_rows,
    latency_table,
    read_records,
    run_table,
    table_of,
)
from metaxc.research.bench.main_table import oracle_vectors
from metaxc.research.bench.tables import gap_closed, markdown, table_markdown
from metaxc.selectors import cross_encoder

CONFIG = IreneConfig(encoder="pretrained", folds=1)


@pytest.fixture(scope="module")
def context(world, tmp_path_factory):
    torch.set_num_threads(1)
    return Context(world.dataset, CONFIG, folder=tmp_path_factory.mktemp("work"), encoder=world.encoder)


def judged(model, dataset):
    return evaluate(model_search(model, dataset), dataset, intervals=False)


def fake_rows(done, values, fails=()):
    """Rows that note that they ran; `values` per row are the per-query P@1 and R@10 of four queries."""

    def run_of(name, value):
        def run(context):
            done.append(name)
            if name in fails:
                raise DataError("It went wrong", got=name)
            queries = np.arange(len(value))
            kept = {"P@1": np.asarray(value, float), "R@10": np.asarray(value, float), "queries": queries}
            metrics = {"zero_shot": {"P@1": float(np.mean(value)), "R@10": float(np.mean(value))}}
            return Outcome(metrics, seconds={"fit": 1.0}, per_query={"zero_shot": kept})

        return run

    return [
        Row(name, "g", run_of(name, value), lambda context, name=name: {"name": name}, default=name == "base")
        for name, value in values.items()
    ]


VALUES = {"base": [100.0] * 40, "same": [100.0] * 40, "worse": [0.0] * 30 + [100.0] * 10, "last": [0.0] * 40}


class TestRunning:
    def test_done_rows_are_skipped_and_a_torn_line_is_done_again(self, context, tmp_path):
        done, results = [], Results(tmp_path / "r.jsonl")
        rows = fake_rows(done, VALUES)
        table = Table("t", "", rows)
        run_table(context, table, rows[:3], results)
        whole = results.path.read_bytes()
        results.path.write_bytes(whole[:-20])  # killed while writing the third row
        assert [r["row"] for r in read_records(results.path)] == ["base", "same"]
        said = []
        found = run_table(context, table, rows, results, report=said.append)
        assert done == ["base", "same", "worse", "worse", "last"]
        assert [r["row"] for r in found] == list(VALUES)
        assert sum("already there" in line for line in said) == 2
        assert [json.loads(line)["row"] for line in results.path.read_text().splitlines()] == list(VALUES)

    def test_again_and_other_settings_and_other_data_do_it_anew(self, context, world, tmp_path):
        done, results = [], Results(tmp_path / "r.jsonl")
        [row] = fake_rows(done, {"base": [1.0]})
        table = Table("t", "", [row])
        run_table(context, table, [row], results)
        run_table(context, table, [row], results, again=True)
        changed = Row(row.name, row.group, row.run, lambda context: {"name": "other"})
        run_table(context, table, [changed], results)
        other = Context(
            with_ratio(world.dataset, 40, 0), CONFIG, folder=context.folder, encoder=world.encoder
        )
        run_table(other, table, [row], results)
        run_table(context, table, [row], results)
        assert len(done) == 4
        assert len(results.records()) == 3

    def test_a_failing_row_is_recorded_and_tried_again_next_time(self, context, tmp_path):
        done, results = [], Results(tmp_path / "r.jsonl")
        rows = fake_rows(done, VALUES, fails=["same"])
        found = run_table(context, Table("t", "", rows), rows, results)
        assert "It went wrong" in found[1]["failed"]
        assert found[1]["metrics"] == {}
        assert len(read_bench([results.path])) == 4
        assert [("failed" in r) for r in found] == [False, True, False, False]
        well = fake_rows(done, VALUES)
        assert "failed" not in run_table(context, Table("t", "", well), well, results)[1]
        assert done == [*VALUES, "same"]

    def test_rows_are_compared_with_the_default_on_the_same_queries(self, context, tmp_path):
        results = Results(tmp_path / "r.jsonl")
        rows = fake_rows([], VALUES)
        base, same, worse, _ = run_table(context, Table("t", "", rows), rows, results)
        assert "versus_default" not in base
        assert same["versus_default"]["zero_shot"]["P@1"]["significant"] is False
        found = worse["versus_default"]["zero_shot"]["R@10"]
        assert found["difference"] == -75.0
        assert found["low"] < -75 < found["high"] < 0
        assert found["significant"] is True

    def test_a_default_that_comes_later_is_still_compared_with(self, context, tmp_path):
        done, results = [], Results(tmp_path / "r.jsonl")
        rows = fake_rows(done, VALUES)
        table = Table("t", "", rows)
        assert "versus_default" not in run_table(context, table, rows[2:], results)[0]
        run_table(context, table, rows, results)
        assert results.records()[0]["versus_default"]["zero_shot"]["P@1"]["difference"] == -75.0
        assert len(done) == 4

    def test_a_damaged_line_is_named(self, tmp_path):
        (tmp_path / "r.jsonl").write_text('{"table": "t"}\nnonsense\n')
        with pytest.raises(DataError, match="line 1"):
            Results(tmp_path / "r.jsonl").records()

    def test_rows_by_pattern(self):
        table = table_of("main")
        assert [row.name for row in chosen_rows(table, "*ORACLE*")] == ["oracle (adapted)", "oracle (frozen)"]
        with pytest.raises(ConfigError, match="No row fits"):
            chosen_rows(table, "nothing")
        with pytest.raises(ConfigError, match="Unknown table"):
            table_of("nothing")


@pytest.mark.parametrize("name", TABLES)
def test_names_are_unique_and_settings_differ(name, context):
    rows = table_of(name).rows
    assert len({row.name for row in rows}) == len(rows)
    # In this context the frozen and the adapted encoder are one, so rows on either may share their settings.
    digests = {
        row.digest(context) for row in rows if "(frozen)" not in row.name and row.name != "bare encoder"
    }
    expected = [row for row in rows if "(frozen)" not in row.name and row.name != "bare encoder"]
    assert len(digests) == len(expected)


class TestMain:
    def test_the_oracle_is_no_worse_than_the_default_and_the_bare_encoder_knows_nothing(
        self, context, tmp_path
    ):
        table = table_of("main")
        wanted = ("metaxc", "bare encoder", "oracle (adapted)", "metaxc (frozen)")
        rows = [row for row in table.rows if row.name in wanted]
        found = {r["row"]: r for r in run_table(context, table, rows, Results(tmp_path / "r.jsonl"))}
        recall = {name: r["metrics"]["zero_shot"]["R@10"] for name, r in found.items()}
        assert recall["metaxc"] > 95
        assert recall["bare encoder"] < 60
        assert recall["oracle (adapted)"] >= recall["metaxc"]
        assert found["metaxc (frozen)"]["metrics"] == found["metaxc"]["metrics"]
        assert found["bare encoder"]["versus_default"]["zero_shot"]["R@10"]["significant"] is True
        assert found["metaxc"]["counts"]["zero_shot"] == {"queries": 160, "items": 40}
        assert found["metaxc"]["config"]["settings"]["recipe"]["folds"] == 1

    def test_the_oracle_changes_novel_items_alone(self, context, world):
        model = context.default
        vectors = oracle_vectors(model, world.dataset)
        novel = world.dataset.novel
        np.testing.assert_array_equal(vectors[~novel], model.vectors[~novel])
        blind = with_vectors(model, np.where(novel[:, None], 0, model.vectors).astype(np.float32))
        assert judged(blind, world.dataset)["zero_shot"]["P@1"] < 10  # all alike: by row
        assert judged(with_vectors(model, vectors), world.dataset)["zero_shot"]["P@1"] > 95
        assert model.vectors is not vectors

    def test_the_papers_row_is_the_papers_recipe_but_for_the_folds(self, context):
        [row] = chosen_rows(table_of("main"), "IRENE*")
        recipe = IreneConfig(**row.settings(context)["recipe"])
        assert recipe == Irene.paper().config.model_copy(update={"folds": 1})

    def test_the_default_model_is_trained_once(self, context, monkeypatch):
        assert context.default is context.default

        def refuse(*args, **kwargs):
            raise AssertionError("trained again")

        monkeypatch.setattr(Irene, "fit", refuse)
        again = Context(context.dataset, CONFIG, folder=context.folder, encoder=context.encoder)
        np.testing.assert_array_equal(again.default.vectors, context.default.vectors)
        assert again.default.about["seconds"]["fit"] > 0


class TestSwitches:
    """What the ablations change, in a world where embeddings know nothing and classifiers everything."""

    def fitted(self, world, **changes):
        config = IreneConfig.model_validate({"encoder": "pretrained", "folds": 1, **changes})
        return Irene(config, encoder=world.encoder).fit(world.dataset)

    def test_neighbours_embeddings_know_nothing_and_centroids_everything(self, world, tmp_path):
        nothing = self.fitted(world, meta_training={"neighbour_input": "embeddings"}, folds=0)
        assert judged(nothing, world.dataset)["zero_shot"]["P@1"] < 30
        everything = self.fitted(world, meta_training={"neighbour_input": "centroids"})
        assert judged(everything, world.dataset)["zero_shot"]["P@1"] > 95
        everything.save(tmp_path / "m")
        again = type(everything).load(tmp_path / "m")
        item = np.asarray(world.encoder.items[:3])
        np.testing.assert_array_equal(again.represent(item), everything.represent(item))

    def test_trained_classifiers_change_and_frozen_ones_do_not(self):
        random = np.random.default_rng(0)
        n, dim, k = 24, 16, 3
        z, w, queries = (random.normal(size=(n, dim)).astype(np.float32) for _ in range(3))
        clicks = csr_array(np.eye(n, dtype=np.float32))
        near = np.stack([(np.arange(1, k + 1) + row) % (n - 1) for row in range(n)])
        near[0] = -1  # an item without neighbours trains nobody
        scores = np.where(near < 0, -np.inf, 1.0).astype(np.float32)
        before = w.copy()
        for train in (False, True):
            config = GeneratorTraining(epochs=2, batch=8, train_classifiers=train)
            made = train_generator(
                ResidualTransformer(dim), [Episode(queries, z, clicks, w, near, scores)], config
            )
            np.testing.assert_array_equal(w, before)
            assert (made.classifiers is w) is not train
        changed = np.flatnonzero((made.classifiers != before).any(axis=1))
        assert changed.tolist() == np.unique(near[1:]).tolist()
        assert n - 1 not in changed  # nobody's neighbour

    def test_an_item_is_its_own_nearest_neighbour_only_when_asked(self, world):
        items = np.asarray(world.encoder.items)
        itself = np.arange(len(items))
        including = IreneConfig(
            generator="transformer", meta_training={"items": "observed", "include_self": True}
        )
        assert (
            ConfiguredParts(including).training_neighbours("transformer", items, 3)[0][:, 0].tolist()
            == itself.tolist()
        )
        found = ConfiguredParts(IreneConfig(generator="transformer")).training_neighbours(
            "transformer", items, 3
        )[0]
        assert found.shape == (len(items), 3)
        assert not (found == itself[:, None]).any()
        assert ConfiguredParts(IreneConfig(generator="combine")).training_neighbours("combine", items, 3)[
            0
        ].shape == (
            0,
            3,
        )  # nothing to train

    def test_self_and_trained_classifiers_reach_the_model(self, world):
        settings = {
            "generator": "transformer",
            "neighbours": 3,
            "folds": 0,
            "meta_training": {"items": "observed"},
        }
        plain = self.fitted(world, **settings)
        with_self = self.fitted(
            world, **{**settings, "meta_training": {"items": "observed", "include_self": True}}
        )
        trained = self.fitted(world, **settings, training={"train_classifiers": True})
        assert not np.array_equal(plain.vectors, with_self.vectors)
        assert plain.custom_neighbour_vectors is None
        assert not np.array_equal(trained.neighbour_vectors, plain.neighbour_vectors)


def test_the_cross_encoder_learns_from_observed_items_and_chooses_the_neighbours(
    context, world, monkeypatch, tmp_path
):
    """In its place a function that prefers the items of one group: all novel items are then made of those."""
    given = {}
    observed = [world.dataset.items.texts[row] for row in world.dataset.observed_rows]
    wanted = set(observed[:4])

    def train(texts, shortlists, usefulness, base, *, seed):
        given.update(texts=texts, shortlists=shortlists, usefulness=usefulness)
        return lambda items, candidates: np.array([[name in wanted for name in line] for line in candidates])

    monkeypatch.setattr(cross_encoder, "train_cross_encoder", train)
    monkeypatch.setattr(ablations, "SHORTLIST", 160)
    table = table_of("ablations")
    rows = chosen_rows(table, "metaxc", "*cross-encoder*")
    default, reranked = run_table(context, table, rows, Results(tmp_path / "r.jsonl"))
    assert given["texts"] == observed
    assert not (given["shortlists"] == np.arange(160)[:, None]).any()
    own_group = given["shortlists"] // 4 == np.arange(160)[:, None] // 4
    assert (
        given["usefulness"][own_group].min()
        > given["usefulness"][~own_group & (given["shortlists"] >= 0)].max()
    )
    assert default["metrics"]["zero_shot"]["P@1"] > 95
    assert reranked["metrics"]["zero_shot"]["P@1"] < 30


class TestOneshot:
    def test_revealed_queries_are_hidden_training_clicks_and_nested(self, world):
        dataset = world.dataset
        few, more = reveal(dataset, 1, 0), reveal(dataset, 5, 0)
        assert len(few) == int(dataset.novel.sum())
        for item, one, five in zip(dataset.novel_rows, few, more, strict=True):
            assert one.tolist() == five[:1].tolist()
            assert len(set(five.tolist())) == 5
            assert dataset.train.clicks[five][:, [item]].toarray().all()
        assert np.concatenate(reveal(dataset, 1, 1)).tolist() != np.concatenate(few).tolist()

    def test_an_item_with_fewer_gives_what_it_has(self):
        items, queries = {"a": "a", "b": "b", "c": "c"}, {"q": "q", "r": "r"}
        dataset = Dataset.of(items, queries, [("q", "a"), ("r", "b"), ("q", "b")]).with_novel(["b", "c"])
        assert sorted(reveal(dataset, 5, 0)[0].tolist()) == [0, 1]
        assert reveal(dataset, 5, 0)[1].tolist() == []

    def test_revealed_queries_find_their_item(self, context, tmp_path):
        table = table_of("oneshot")
        rows = [row for row in table.rows if row.name in ("metaxc", "votes of 1", "both of 5")]
        found = run_table(context, table, rows, Results(tmp_path / "r.jsonl"))
        assert [r["metrics"]["zero_shot"]["P@1"] > 95 for r in found] == [True] * 3
        assert found[1]["note"] == "1 revealed to 40 of 40 novel items, fewer to 0, none to 0"


class TestRatio:
    def test_sets_are_nested_and_of_their_size(self, world):
        sets = [with_ratio(world.dataset, percent, 0).novel for percent in RATIOS]
        assert [int(mask.sum()) for mask in sets] == [20, 40, 60, 80]  # its own novel items are 20 percent
        for small, large in pairwise(sets):
            assert (large | ~small).all()

    def test_the_data_sets_own_ten_percent_are_the_first_set(self, world):
        own = np.zeros(200, dtype=bool)
        own[::10] = True
        dataset = world.dataset.with_novel(own)
        assert with_ratio(dataset, 10, 0) is dataset
        twenty = with_ratio(dataset, 20, 0).novel
        assert twenty[own].all()
        assert twenty.sum() == 40

    def test_rows(self, context, tmp_path):
        table = table_of("novel-ratio")
        results = Results(tmp_path / "r.jsonl")
        main = table_of("main")
        run_table(context, main, chosen_rows(main, "metaxc"), results)
        found = run_table(context, table, chosen_rows(table, "*40 %*"), results)
        bare, alone, ours = (r["metrics"]["zero_shot"]["R@10"] for r in found)
        assert alone == bare  # one and the same encoder here
        assert ours > 90 > bare + 20
        assert found[0]["counts"]["zero_shot"]["items"] == 80
        assert not any("versus_default" in r for r in found)


def test_the_page_keeps_what_is_written_by_hand():
    file = Path(__file__).parents[2] / "benchmarks" / "results_page.py"
    spec = importlib.util.spec_from_file_location("results_page", file)
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    old = page.rewritten("by hand\n" + page.START + "also by hand\n", "old numbers")
    new = page.rewritten(old, "new numbers")
    assert "old numbers" in old
    assert new == old.replace("old numbers", "new numbers")
    assert new.startswith("by hand\n")
    assert new.endswith("also by hand\n")
    assert "| LF-AOL-270K-10 | 30.9 → 36.5 (+5.6) | 54.2 → 59.6 (+5.4) |" in page.paper_gains()
    with pytest.raises(DataError, match="no markers"):
        page.rewritten("nothing", "numbers")


def test_latency_is_measured_in_turn_with_encoding(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(latency_table.time, "perf_counter", lambda: clock[0])

    def spend(seconds):
        def work(at):
            clock[0] += seconds * (at.stop - at.start)

        return work

    found = latency_table.times(spend(0.002), spend(0.004), texts=300)
    assert found["single"] == pytest.approx({"ms": 2.0, "encode ms": 4.0, "times encoding": 0.5})
    assert found["batch 256"] == pytest.approx({"ms": 2.0, "encode ms": 4.0, "times encoding": 0.5})


def record(row, values, group="g", **more):
    metrics = {
        "zero_shot": {"P@1": values[0], "R@10": values[1]},
        "generalized": {"P@1": values[2], "R@10": values[3]},
    }
    head = {"table": "main", "row": row, "group": group, "data": "shop", "fingerprint": "f"}
    head["config"] = {"digest": row, "settings": {}}
    return {**head, "metrics": metrics, "intervals": {}, **more}


class TestTables:
    def rows(self):
        intervals = {"zero_shot": {"P@1": [39.0, 45.0], "R@10": [58.0, 62.0]}}
        failed = record("BM25", (0, 0, 0, 0), "terms", failed="It went\n  wrong") | {
            "metrics": {},
            "seconds": {},
        }
        return [
            record("bare encoder", (20.0, 30.0, 10.0, 10.0), "frozen encoder"),
            record("metaxc", (42.0, 60.0, 50.0, 55.0), "adapted encoder", default=True, intervals=intervals),
            record("adapted encoder alone", (40.0, 63.0, 20.0, 25.0), "adapted encoder"),
            record("oracle (adapted)", (70.0, 80.0, 51.0, 56.0), group="oracle"),
            failed,
        ]

    def test_by_hand(self):
        lines = markdown(self.rows()).splitlines()
        assert lines[:3] == ["## shop", "", "### main"]
        assert lines[4].startswith("|  | zero-shot P@1 | zero-shot R@10 | generalized P@1 ")
        assert lines[9] == "| metaxc | **42.0** | 60.0 | **50.0** | **55.0** |"
        assert lines[8] == "| adapted encoder alone | 40.0 ≈ | **63.0** | 20.0 | 25.0 |"
        assert lines[7] == "| bare encoder | 20.0 | 30.0 | 10.0 | 10.0 |"
        assert lines[10] == "| oracle (adapted) | 70.0 | 80.0 | 51.0 | 56.0 |"
        assert lines[6] == "| BM25 | – | – | – | – |"
        assert lines[12].endswith("from the bare encoder 60 % of the way to the oracle (adapted).")
        assert lines[14] == "BM25: not measured (It went wrong)"

    def test_gap_closed(self):
        assert gap_closed(self.rows()) == {"oracle (adapted)": pytest.approx(60.0)}
        assert gap_closed(self.rows()[1:]) == {}

    def test_the_newest_record_of_a_row_counts(self):
        rows = [*self.rows(), record("bare encoder", (21.0, 31.0, 11.0, 11.0))]
        assert "| bare encoder | 21.0 |" in markdown(rows)
        assert "| bare encoder | 20.0 |" not in markdown(rows)

    def test_in_novel_ratio_each_ratio_has_its_best(self):
        rows = [
            record(f"{system}, {percent} % novel", (value,) * 4, f"{percent} % novel", table="novel-ratio")
            for percent, system, value in [(10, "a", 9.0), (10, "b", 8.0), (20, "a", 5.0), (20, "b", 7.0)]
        ]
        printed = table_markdown(rows)
        assert [line.count("**") for line in printed.splitlines()[2:]] == [8, 0, 0, 8]

    def test_latency(self):
        metrics = {
            "single": {"ms": 1.234, "times encoding": 0.1},
            "batch 256": {"ms": 0.05, "times encoding": 2.0},
        }
        row = record("select", (0, 0, 0, 0), table="latency") | {"metrics": metrics}
        assert table_markdown([row]).splitlines()[2] == "| select | 1.23 | 0.1 | 0.05 | 2 |"
