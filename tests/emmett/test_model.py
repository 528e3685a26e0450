from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from world_model import build_model

from metaxc.artifacts import load_json, save_json, write_manifest
from metaxc.classifiers import RevealedQueries
from metaxc.emmett import Calibration, Emmett
from metaxc.emmett.model_identity import item_fingerprint
from metaxc.emmett.neighbour_pool import NeighbourPool, TrainedPool
from metaxc.emmett.scoring import LEAST_RESPONSE, scale_by_trust
from metaxc.encoders import Vectors
from metaxc.errors import DataError, ModelError
from metaxc.evaluation import encoder_search, evaluate, model_search
from metaxc.generators import Combine, Sum
from metaxc.irene import Irene, IreneConfig
from metaxc.selectors import ClusterSelector, NearestSelector, RerankSelector, cluster


@pytest.fixture(scope="module")
def model(world):
    return Irene(IreneConfig(encoder="pretrained"), encoder=world.encoder).fit(world.dataset)


def test_the_embedding_alone_knows_nothing_and_the_meta_classifier_everything(world, model):
    bare = evaluate(encoder_search(world.encoder, world.dataset), world.dataset, intervals=False)
    ours = evaluate(model_search(model, world.dataset), world.dataset, intervals=False)
    assert bare["zero_shot"]["P@1"] < 20
    assert ours["zero_shot"]["P@1"] == 100
    assert ours["generalized"]["P@1"] == 100
    assert ours["generalized"]["R@5"] > 99


def test_represent_by_text_and_by_vector_agree(world, model):
    texts = [world.dataset.items.texts[row] for row in world.dataset.novel_rows[:3]]
    np.testing.assert_allclose(
        model.represent(texts), model.represent(world.encoder.encode_items(texts)), atol=1e-6
    )
    np.testing.assert_allclose(model.represent(texts), model.vectors[world.dataset.novel_rows[:3]], atol=1e-6)


def test_observed_items_are_text_neighbours_and_own_classifier(model):
    """The whole formula for one item, its neighbours searched by hand."""
    c, z = model.calibration, model.embeddings[0]
    n = model.classifiers.clicks[0]
    similar = model.embeddings @ z
    near = np.argsort(-similar)
    near = near[near != 0][: model.neighbours]
    weights = np.exp(similar[near] / model.generator.temperature)
    w = model.classifiers.weights
    trusted = n / (n + model.neighbour_prior) * w[near]  # all items have the same number of clicks
    g = z + model.generator.strength * (weights / weights.sum()) @ trusted
    r = c.novelty_prior / (n + c.novelty_prior)
    s = 1 + (c.novel_scale - 1) * r
    expected = s * (z + r * (g - z)) + c.own * n / (n + c.prior_clicks) * w[0]
    np.testing.assert_allclose(model.vectors[model.observed[0]], [*expected, r], atol=1e-5)
    assert r > 0.01


class TestItself:
    """No observed item is informed by its own classifier: on its training clicks that looks better than it is."""

    SHOUT = 50.0

    @pytest.fixture
    def shouting(self, model):
        """Items 0 and 1 have the same embedding, and classifiers along axes of their own that nothing else uses."""
        embeddings, weights = model.embeddings.copy(), model.classifiers.weights.copy()
        embeddings[1] = embeddings[0]
        embeddings[:, -2:], weights[:, -2:] = 0.0, 0.0
        weights[:2] = 0.0
        weights[0, -2], weights[1, -1] = self.SHOUT, self.SHOUT
        return Emmett(
            model.encoder,
            replace(model.classifiers, weights=weights),
            embeddings,
            Combine(1.0, 0.1),
            model.items,
            model.observed,
            neighbours=3,
            calibration=Calibration(own=0.0, novelty_prior=10.0),
        )

    def test_among_trained_items_also_with_duplicate_texts(self, shouting):
        first, second = shouting.vectors[shouting.observed[:2], -3:-1]
        assert first[0] == second[1] == 0  # its own classifier: nothing
        assert first[1] > 1  # that of the other item with the same text: as of any neighbour
        assert second[0] > 1

    @pytest.mark.parametrize("count", [2, 8])
    def test_with_more_duplicates_than_neighbours(self, count):
        """Where ties push an item out of its own neighbours, nothing else is dropped in its place but the last."""
        same = np.repeat(np.float32([[1, 0]]), count, axis=0)
        pool = NeighbourPool(TrainedPool(NearestSelector(same), same, None, can_grow=False))
        rows = pool.select(same, 3, itself=np.arange(count)).rows
        for itself, line in enumerate(rows.tolist()):
            found = [row for row in line if row >= 0]
            assert itself not in found
            assert len(found) == min(3, count - 1)

    def test_among_items_that_came_later(self, shouting):
        """An item that replaces a trained one of its id, and one that is new."""
        pool = shouting.pipeline.pool
        ids = [pool.trained.items.ids[0], "new"]
        embeddings = shouting.embeddings[[0, 0]]
        vectors = self.SHOUT * np.eye(shouting.encoder.dim, dtype=np.float32)[-2:]
        grown = pool.with_items(ids, ["again", "new"], embeddings, vectors)
        rows = np.array([grown.row_of(name) for name in ids])
        assert rows.tolist() == [len(pool), len(pool) + 1]
        assert grown.row_of(pool.trained.items.ids[1]) == 1
        assert grown.row_of("unknown") == pool.row_of("new") == -1
        assert [grown.name(row)[1] for row in rows] == ["again", "new"]
        selected = grown.select(embeddings, 3, itself=rows).rows
        assert rows[0] not in selected[0]
        assert rows[1] not in selected[1]
        assert rows[1] in selected[0]  # they are each other's nearest
        assert rows[0] in selected[1]
        assert 0 not in selected  # the trained row that was replaced
        found = replace(shouting.pipeline, pool=grown).vectors(embeddings, itself=rows)
        assert found[0, -3] == 0
        assert found[1, -3] > 1

    def test_later_items_step_by_step_keep_their_rows_by_id(self, shouting):
        """Where an item replaces an earlier later one, the rows of the others move and `row_of` follows."""
        pool, one = shouting.pipeline.pool, shouting.embeddings[:1]
        grown = pool
        for name in ("a", "b", "a"):
            grown = grown.with_items([name], [name], one, one)
        assert [grown.name(grown.row_of(name))[0] for name in ("a", "b")] == ["a", "b"]
        assert len(grown) == len(pool) + 2

    def test_votes_do_not_bring_it_back(self, shouting):
        """A query that scores highest with the item's own classifier votes for others."""
        axis = np.eye(shouting.encoder.dim, dtype=np.float32)[-2:-1]
        revealed = RevealedQueries(axis, np.array([0]), ["its own"], 1)
        chosen = shouting.pipeline.pool.select(shouting.embeddings[:1], 3, None, revealed, np.array([0]))
        assert 0 not in chosen.rows
        voted = shouting.pipeline.pool.select(shouting.embeddings[:1], 3, None, revealed)
        assert 0 in voted.rows

    def test_in_blocks_as_at_once(self, model, monkeypatch):
        monkeypatch.setattr("metaxc.emmett.pipeline.BLOCK", 7)
        np.testing.assert_allclose(
            with_parts(model, neighbour_prior=model.neighbour_prior).vectors, model.vectors, atol=1e-6
        )


class TestExposure:
    def test_it_moves_novel_items_and_leaves_the_others(self, model):
        def ranks(exposure):
            hits = model.search(["t0"], k=200, exposure=exposure)[0]
            return [hit.id for hit in hits].index("i4"), {hit.id: hit.score for hit in hits}

        response = float(model.encode_queries(["t0"], 1.0)[0, -1])
        assert 0.9 < response < 1.1  # a query like the training queries
        low, by_low = ranks(-5.0)
        as_trained, by_default = ranks(None)
        high, by_high = ranks(5.0)
        assert low >= 5 > as_trained >= high == 0
        assert by_high["i4"] - by_low["i4"] == pytest.approx(10 * response, abs=1e-4)
        novelty = float(model.vectors[model.observed[0], -1])
        assert 0 < novelty < 1  # 20 clicks
        for name in ("i0", "i50"):
            assert by_high[name] - by_low[name] == pytest.approx(10 * response * novelty, abs=1e-4)
        chosen = model.calibration.exposure
        assert by_default["i4"] - by_low["i4"] == pytest.approx(response * (chosen + 5.0), abs=1e-4)

    def test_an_item_with_very_many_clicks_keeps_its_score(self, model):
        clicks = np.full(len(model.observed), 10**8)
        clicked = with_parts(model, classifiers=replace(model.classifiers, clicks=clicks))
        scores = [
            {hit.id: hit.score for hit in clicked.search(["t0"], k=200, exposure=exposure)[0]}
            for exposure in (0.0, 1.0)
        ]
        moved = {name: scores[1][name] - scores[0][name] for name in ("i0", "i4")}
        response = float(model.encode_queries(["t0"], 1.0)[0, -1])
        assert moved == pytest.approx({"i0": 0.0, "i4": response}, abs=1e-5)

    def test_the_chosen_one_is_part_of_the_query(self, model):
        constants = {"exposure": 0.7, "response_unit": None}
        loud = with_parts(model, calibration=model.calibration.model_copy(update=constants))
        assert loud.encode_queries(["t0", "t1"])[:, -1] == pytest.approx([0.7, 0.7])
        assert loud.encode_queries(["t0"], 0.2)[0, -1] == pytest.approx(0.2)
        assert loud.encode_queries(["t0"], 0.0)[0, -1] == 0  # 0 is a value, not "as chosen"
        assert loud.fingerprint != model.fingerprint

    def test_freshness_is_part_of_the_item_and_of_both_fingerprints(self, model, tmp_path):
        """A third of the exposure is left to an item that was not clicked for `freshness_days`; with many clicks."""
        count = len(model.observed)
        ages = np.where(np.arange(count) == 0, 0, 30).astype(np.float32)
        classifiers = replace(model.classifiers, clicks=np.full(count, 10**8), ages=ages)
        calibration = model.calibration.model_copy(update={"freshness_days": 30.0})
        fresh = with_parts(model, classifiers=classifiers, calibration=calibration)
        shares = fresh.vectors[fresh.observed, -1]
        np.testing.assert_allclose(shares, [1, *[np.exp(-1)] * (count - 1)], rtol=1e-5)
        assert (fresh.vectors[fresh.novel, -1] == 1).all()
        fresh.save(tmp_path / "m")
        again = Emmett.load(tmp_path / "m")
        assert again.search(["t0"], k=7) == fresh.search(["t0"], k=7)
        older = with_parts(fresh, classifiers=replace(classifiers, ages=ages[::-1].copy()))
        slower = with_parts(fresh, calibration=calibration.model_copy(update={"freshness_days": 60.0}))
        for fingerprint in (lambda one: one.fingerprint, item_fingerprint):
            assert fingerprint(again) == fingerprint(fresh)
            assert len({fingerprint(one) for one in (fresh, older, slower)}) == 3

    def test_a_query_to_which_no_classifier_responds_has_little_of_it(self, model):
        """The exposure is proportional to the best score of an observed item's classifier."""
        model = with_parts(model, calibration=model.calibration.model_copy(update={"response_unit": 0.5}))
        known = model.embed_queries(["t0"])
        unknown = np.linalg.svd(model.classifiers.weights)[2][-1:].astype(np.float32)
        assert np.abs(model.classifiers.weights @ unknown[0]).max() < 1e-3
        exposures = model.encode_queries(np.concatenate([known, unknown]), 0.4)[:, -1]
        expected = 0.4 * (model.classifiers.weights @ known[0]).max() / 0.5
        assert exposures == pytest.approx([expected, 0.4 * LEAST_RESPONSE], rel=1e-5)


def test_search_marks_novel_items_and_never_answers_more_than_there_are(world, model):
    hits = model.search(["t0"], k=5)[0]
    assert {hit.id for hit in hits} == {"i0", "i1", "i2", "i3", "i4"}
    assert [hit.id for hit in hits if hit.novel] == ["i4"]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len(model.search(["t0"], k=10_000)[0]) == len(world.dataset.items)
    assert [hit.id for hit in model.search(["t0"], k=1, among=model.novel)[0]] == ["i4"]


def test_explain_names_the_group_and_shares_add_up(model):
    explanation = model.explain("i4")
    assert {n.id for n in explanation.neighbours[:3]} <= {"i0", "i1", "i2", "i3"}
    total = explanation.text_share + explanation.neighbour_share + explanation.learnt_share
    assert total == pytest.approx(100)
    assert sum(n.share for n in explanation.neighbours) == pytest.approx(explanation.neighbour_share)
    assert explanation.learnt_share == pytest.approx(0, abs=1e-3)


def test_more_neighbours_than_observed_items(world):
    config = IreneConfig(encoder="pretrained", neighbours=500, folds=0)
    model = Irene(config, encoder=world.encoder).fit(world.dataset)
    assert len(model.explain("i4").neighbours) == len(model.observed)
    assert np.isfinite(model.vectors).all()


def test_an_added_item_is_in_the_next_search(world, model, tmp_path):
    model.save(tmp_path / "m")
    mine = Emmett.load(tmp_path / "m")
    mine.encoder._item_row["new"] = mine.encoder._item_row["i4"]
    mine.add(["fresh"], ["new"])
    assert "fresh" in {hit.id for hit in mine.search(["t0"], k=6)[0]}
    assert mine.novel[-1]
    with pytest.raises(DataError, match="already exists"):
        mine.add(["fresh"], ["new"])


def test_bad_queries_are_named(model):
    with pytest.raises(DataError, match="wrong shape"):
        model.search(np.ones((1, 7), np.float32))
    with pytest.raises(DataError, match="NaN"):
        model.represent(np.full((1, model.encoder.dim), np.nan, np.float32))
    with pytest.raises(DataError, match="empty query"):
        model.search(["  "])
    with pytest.raises(DataError, match="list"):
        model.search("t0")
    with pytest.raises(DataError, match="positive"):
        model.search(["t0"], k=0)


class TestFolder:
    def test_loaded_it_answers_the_same(self, world, model, tmp_path):
        model.save(tmp_path / "m")
        again = Emmett.load(tmp_path / "m")
        assert again.fingerprint == model.fingerprint
        assert again.search(["t0", "t9"], k=7) == model.search(["t0", "t9"], k=7)
        assert again.explain("i4") == model.explain("i4")

    def test_every_damaged_file_is_refused(self, model, tmp_path):
        place = tmp_path / "m"
        model.save(place)
        files = [file for file in place.rglob("*") if file.is_file()]
        assert len(files) >= 7
        for file in files:
            whole = file.read_bytes()
            for damaged in (b"", whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]), whole + b"x"):
                file.write_bytes(damaged)
                with pytest.raises(ModelError):
                    Emmett.load(place)
            file.unlink()
            with pytest.raises(ModelError):
                Emmett.load(place)
            file.write_bytes(whole)
        Emmett.load(place)

    def test_a_folder_that_is_no_model(self, tmp_path):
        with pytest.raises(ModelError, match="Not a metaxc folder"):
            Emmett.load(tmp_path)

    def test_a_folder_from_before_selectors_were_saved(self, model, tmp_path):
        model.save(tmp_path / "m")
        config = load_json(tmp_path / "m" / "config.json")
        assert config.pop("selector") == "nearest"
        save_json(tmp_path / "m" / "config.json", config)
        write_manifest(tmp_path / "m", "emmett")
        assert not (tmp_path / "m" / "selector.safetensors").exists()
        assert Emmett.load(tmp_path / "m").explain("i4") == model.explain("i4")


def with_parts(model, **parts):
    """The model with other parts."""
    return Emmett(
        model.encoder,
        parts.pop("classifiers", model.classifiers),
        model.embeddings,
        parts.pop("generator", model.generator),
        model.items,
        model.observed,
        **{"neighbours": model.neighbours, "calibration": model.calibration, **parts},
    )


class TestParts:
    @pytest.fixture
    def clustered(self, model):
        centroids, assigned = cluster(model.embeddings, 40)
        bank = np.stack(
            [model.classifiers.weights[assigned == c].mean(axis=0) for c in range(len(centroids))]
        )
        return with_parts(
            model, selector=ClusterSelector(centroids), neighbour_vectors=bank, generator=Sum(), neighbours=1
        )

    def test_the_defaults_given_by_hand_change_nothing(self, world, model):
        same = with_parts(
            model, selector=NearestSelector(model.embeddings), neighbour_vectors=model.neighbour_vectors
        )
        np.testing.assert_array_equal(same.vectors, model.vectors)
        assert same.explain("i4") == model.explain("i4")

    def test_clusters_know_the_groups_and_are_named(self, world, clustered):
        found = evaluate(model_search(clustered, world.dataset), world.dataset, intervals=False)
        assert found["zero_shot"]["P@1"] > 90  # k-means before scikit-learn 1.9 takes some groups together
        (one,) = clustered.explain("i4").neighbours
        row = int(clustered.selector.select(world.encoder.encode_items(["i4"]), 1)[0][0, 0])
        assert one.id == f"cluster {row}"
        embedding = world.encoder.encode_items(["i4"])[0]
        expected = clustered.calibration.novel_scale * (embedding + clustered.neighbour_vectors[row])
        np.testing.assert_allclose(clustered.represent(["i4"])[0], [*expected, 1], atol=1e-6)

    def test_without_novelty_prior_observed_items_do_not_depend_on_the_selector(self, model, clustered):
        rows = model.observed
        ends = model.calibration.model_copy(update={"novelty_prior": 0.0})
        first, second = (
            with_parts(
                one,
                selector=one.selector,
                neighbour_vectors=one.custom_neighbour_vectors,
                generator=one.generator,
                calibration=ends,
            )
            for one in (model, clustered)
        )
        np.testing.assert_array_equal(first.vectors[rows], second.vectors[rows])
        assert not np.allclose(clustered.vectors[rows], model.vectors[rows], atol=1e-3)

    def test_clusters_are_saved_and_damage_is_seen(self, clustered, tmp_path):
        clustered.save(tmp_path / "m")
        again = Emmett.load(tmp_path / "m")
        assert again.fingerprint == clustered.fingerprint
        assert again.explain("i4") == clustered.explain("i4")
        np.testing.assert_array_equal(again.represent(["i9"]), clustered.represent(["i9"]))
        file = tmp_path / "m" / "selector.safetensors"
        file.write_bytes(file.read_bytes()[:-1] + b"x")
        with pytest.raises(ModelError, match=r"selector\.safetensors"):
            Emmett.load(tmp_path / "m")

    def test_the_fingerprint_covers_selector_and_bank(self, model, clustered):
        other_bank = with_parts(model, neighbour_vectors=model.neighbour_vectors + 0.1)
        same_bank = with_parts(model, neighbour_vectors=model.neighbour_vectors + 0.1)
        assert other_bank.fingerprint == same_bank.fingerprint
        reranked = with_parts(model, selector=by_name(model))
        assert len({m.fingerprint for m in (model, clustered, other_bank, reranked)}) == 4

    def test_a_bank_of_another_size(self, model):
        with pytest.raises(DataError, match="do not fit together"):
            with_parts(model, neighbour_vectors=model.neighbour_vectors[:3])
        with pytest.raises(DataError, match="do not fit together"):
            with_parts(model, selector=ClusterSelector(model.embeddings[:3]))


def by_name(model):
    """Prefers the observed items of one group: i0 to i3."""

    def prefer(items, candidates):
        return np.array([[-int(name[1:]) if name else -1e9 for name in line] for line in candidates])

    texts = [model.items.texts[row] for row in model.observed]
    return RerankSelector(NearestSelector(model.embeddings), prefer, texts, shortlist=len(texts))


class TestRerank:
    def test_texts_reach_the_function_in_represent_explain_and_index(self, model):
        reranked = with_parts(model, selector=by_name(model), neighbours=4)
        assert [n.id for n in reranked.explain("i9").neighbours] == ["i0", "i1", "i2", "i3"]
        np.testing.assert_allclose(
            reranked.vectors[model.novel][:2], reranked.represent(["i4", "i9"]), atol=1e-6
        )
        with pytest.raises(DataError, match="needs the items' texts"):
            reranked.represent(model.embeddings[:1])

    def test_a_function_is_not_saved_and_must_be_given_again(self, model, tmp_path):
        reranked = with_parts(model, selector=by_name(model), neighbours=4)
        reranked.save(tmp_path / "m")
        with pytest.raises(ModelError, match=r"Emmett\.load\(folder, selector=\.\.\.\)"):
            Emmett.load(tmp_path / "m")
        again = Emmett.load(tmp_path / "m", selector=by_name(model))
        assert again.explain("i9") == reranked.explain("i9")


class TestFewShot:
    """Item i4 is of group 0 by its text; q100 is a query of group 5, whose observed items are i25 to i28."""

    @pytest.fixture
    def simple(self, model):
        return with_parts(
            model,
            generator=Combine(1.0, 0.1),
            neighbours=8,
            calibration=Calibration(own=2.0, prior_clicks=3.0, novelty_prior=4.0, novel_scale=1.3),
        )

    def test_nothing_revealed_is_the_meta_classifier_to_the_last_bit(self, simple):
        alone = simple.represent(["i4", "i9"])
        np.testing.assert_array_equal(simple.represent(["i4", "i9"], [[], []]), alone)
        np.testing.assert_array_equal(simple.represent(["i4", "i9"], [[], ["q0"]])[0], alone[0])

    def test_a_revealed_query_is_answered_with_the_item(self, world, simple):
        alone, voted, seen, both = (
            simple.encode_queries(["q101"]) @ simple.represent(["i4"], [["q100"]], **switches).T
            for switches in (
                {"votes": False, "evidence": False},
                {"evidence": False},
                {"votes": False},
                {},
            )
        )
        assert alone < 0.1 < 0.2 < voted < both
        assert alone + 0.2 < seen < both

    def test_evidence_grows_with_the_clicks_as_an_observed_items_does(self, world, simple):
        for n in (1, 2, 5):
            queries = [f"q{row}" for row in range(n)]
            made = simple.represent(["i4"], [queries], votes=False)
            z, g = world.encoder.encode_items(["i4"]), simple.represent(["i4"])[:, :-1] / 1.3
            r = 4.0 / (n / 3 + 4.0)  # the encoder has not learnt from these clicks
            assert made[0, -1] == pytest.approx(r)
            added = made[:, :-1] - (1 + 0.3 * r) * (z + r * (g - z))
            np.testing.assert_allclose(np.linalg.norm(added), 2.0 * n / (n + 3.0), rtol=1e-4)
            group = world.encoder.encode_queries([f"q{row}" for row in range(20)]).mean(axis=0)
            cosine = added[0] @ group / np.linalg.norm(added) / np.linalg.norm(group)
            assert cosine > 0.75

    def test_texts_and_embeddings_agree(self, world, simple):
        vectors = world.encoder.encode_queries(["q100", "q101"])
        np.testing.assert_allclose(
            simple.represent(["i4"], [vectors]), simple.represent(["i4"], [["q100", "q101"]]), atol=1e-6
        )

    def test_explain_shows_who_voted_and_what_the_clicks_add(self, simple):
        explanation = simple.explain("i4", revealed=["q100"])
        voted = {n.id for n in explanation.neighbours if n.voter == "q100"}
        assert voted == {"i25", "i26", "i27", "i28"}
        assert {n.id for n in explanation.neighbours if n.voter is None} == {"i0", "i1", "i2", "i3"}
        assert explanation.revealed_share > 5
        shares = (
            explanation.text_share,
            explanation.neighbour_share,
            explanation.learnt_share,
            explanation.revealed_share,
        )
        assert sum(shares) == pytest.approx(100)
        assert explanation.learnt_share == pytest.approx(0, abs=1e-3)
        assert simple.explain("i4").revealed_share == 0

    def test_an_item_added_with_its_first_click_is_found_by_the_like(self, world, simple, tmp_path):
        simple.save(tmp_path / "m")
        mine = Emmett.load(tmp_path / "m")
        mine.encoder._item_row["new"] = mine.encoder._item_row["i4"]
        mine.add(["without", "with"], ["new", "new"], revealed=[[], ["q100"]])
        names = {hit.id for hit in mine.search(["t20"], k=7)[0]}
        assert "with" in names
        assert "without" not in names

    def test_lists_that_do_not_fit(self, simple):
        with pytest.raises(DataError, match="do not match the items"):
            simple.represent(["i4"], [["q0"], ["q1"]])
        with pytest.raises(DataError, match="list"):
            simple.represent(["i4"], ["q0"])
        with pytest.raises(DataError, match="empty query"):
            simple.represent(["i4"], [[" "]])


def test_unknown_settings_are_errors():
    with pytest.raises(ValueError, match="bogus"):
        Calibration(bogus=1)


def test_a_pipeline_grows_by_observed_items_and_leaves_the_others_as_they_were(world, model):
    """A new observed item of the second group's queries, with a text of the first group."""
    before = model.pipeline
    embedding = world.encoder.encode_items(["i4"])
    revealed = RevealedQueries.embed([["q20", "q21"]], 1, model.embed_queries)
    own = before.few_shot.fit(revealed)

    def neighbours(pipeline):
        return pipeline.explain(pipeline.run(embedding), "i4").neighbours

    grown = before.with_observed_items(["more"], ["one more"], embedding, own)
    assert len(grown.pool) == len(before.pool) + 1
    assert neighbours(grown)[0].id == "more"
    assert "more" not in {one.id for one in neighbours(before)}
    other = world.encoder.encode_items(["i14"])
    np.testing.assert_allclose(grown.vectors(other), before.vectors(other), atol=1e-6)
    replaced = before.with_observed_items(["i0"], ["another i0"], embedding, own)
    assert len(replaced.pool) == len(before.pool)
    assert {one.id: one.text for one in neighbours(replaced)}["i0"] == "another i0"
    assert len([one for one in neighbours(replaced) if one.id == "i0"]) == 1


def test_growing_step_by_step_or_at_once_is_the_same_and_votes_count_all(world, model):
    embeddings = world.encoder.encode_items(["i4", "i9", "i14"])
    revealed = RevealedQueries.embed([["q0"], ["q20"], ["q40"]], 3, model.embed_queries)
    own = model.pipeline.few_shot.fit(revealed)
    ids = ["a", "i0", "a2"]
    at_once = model.pipeline.with_observed_items(ids, ids, embeddings, own)
    by_step = model.pipeline
    for row, name in enumerate(ids):
        by_step = by_step.with_observed_items([name], [name], embeddings[row : row + 1], own.take([row]))
    voting = RevealedQueries.embed([["q1", "q21"]], 1, model.embed_queries)
    item = world.encoder.encode_items(["i19"])
    one, other = (pipeline.run(item, revealed=voting) for pipeline in (at_once, by_step))
    np.testing.assert_array_equal(one.selection.rows, other.selection.rows)
    np.testing.assert_allclose(one.vectors, other.vectors, atol=1e-6)
    # The same as one model trained with all of them: the pool of both parts is searched as one.
    replaced = ~np.isin(model.items.take(model.observed).ids, ids)
    everything = np.concatenate([model.embeddings[replaced], embeddings])
    vectors = np.concatenate([model.neighbour_vectors[replaced], scale_by_trust(own, model.neighbour_prior)])
    whole = NeighbourPool(TrainedPool(NearestSelector(everything), vectors, None, can_grow=False))
    together = replace(model.pipeline, pool=whole).run(item, revealed=voting)
    np.testing.assert_allclose(together.vectors, one.vectors, atol=1e-5)


def test_a_model_with_a_selector_of_its_own_does_not_grow(world, model):
    clusters = with_parts(
        model,
        selector=ClusterSelector(model.embeddings[:3]),
        neighbour_vectors=model.classifiers.weights[:3],
    )
    with pytest.raises(DataError, match="train again"):
        clusters.pipeline.with_observed_items([], [], model.embeddings[:0], model.classifiers.take([]))


def test_few_members():
    """What a user of the library has to know: half of what it was."""
    members = [name for name in vars(Emmett) if not name.startswith("_")]
    assert len(members) <= 15


def test_a_model_of_items_as_queries_leaves_the_own_item_out(world):
    texts = dict(zip(world.dataset.items.ids, world.dataset.items.texts, strict=True))
    encoder = Vectors(list(texts.values()), world.encoder.items, list(texts.values()), world.encoder.items)
    known = build_model(world)
    plain, own = (
        Emmett(
            encoder, known.classifiers, known.embeddings, known.generator, known.items, known.observed,
            calibration=Calibration(own=0.0), about=about,
        )
        for about in ({}, {"exclude_self": True})
    )  # fmt: skip
    assert plain.search(["i3"], k=1)[0][0].id == "i3"
    before, after = plain.search(["i3"], k=6)[0], own.search(["i3"], k=5)[0]
    assert [hit.id for hit in after] == [hit.id for hit in before if hit.id != "i3"]
    assert [hit.score for hit in after] == [hit.score for hit in before if hit.id != "i3"]
    assert own.search(encoder.encode_queries(["i3"]), k=1)[0][0].id == "i3"  # of a vector no text is known


def test_texts_may_be_columns(world):
    model = build_model(world)
    expected = model.search(["t0", "t5"])
    column = pa.array(["t0", "t5"])
    for given in (np.array(["t0", "t5"]), column, pa.table({"text": column, "n": [1, 2]}), ("t0", "t5")):
        assert model.search(given) == expected
    np.testing.assert_array_equal(model.represent(pa.array(["i4"])), model.represent(["i4"]))
    with pytest.raises(DataError, match=r"position 1: None"):
        model.search(pa.array(["t0", None]))
