"""Synthetic click logs: what was asked for is what is written, for any sizes and seeds."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from metaxc.data import read_folder, split
from metaxc.data.check import check_folder
from metaxc.data.synthetic import SyntheticConfig, SyntheticLog, round_to_sum, share_out, write_synthetic
from metaxc.data.synthetic_words import COMMON, SYLLABLES, common_words, make_words


def written(folder: Path, **options) -> tuple[dict[str, int], Path]:
    folder.mkdir()
    return write_synthetic(folder, SyntheticConfig(**options)), folder


def pairs(log: SyntheticLog) -> np.ndarray:
    """(clicks, 2) query and row of the item."""
    blocks = list(log.blocks())
    queries = np.concatenate([block.clickers for block in blocks])
    return np.stack([queries, log.row_of[np.concatenate([block.clicked for block in blocks])]], axis=1)


@settings(max_examples=60, deadline=None)
@given(
    items=st.integers(20, 400),
    queries=st.integers(20, 500),
    per_query=st.floats(1, 5),
    zipf=st.sampled_from([0.0, 0.7, 1.0, 2.0]),
    topics=st.sampled_from([None, 1, 2, 20]),
    off_topic=st.sampled_from([0.0, 0.05, 0.9]),
    seed=st.integers(0, 3),
)
# Here an item has more clicks than all other topics have queries.
@example(items=20, queries=20, per_query=5.0, zipf=3.0, topics=2, off_topic=0.9, seed=0)
def test_every_query_has_a_click_and_no_pair_comes_twice(
    items, queries, per_query, zipf, topics, off_topic, seed
):
    clicks = min(int(queries * per_query), queries * items // 4)
    log = SyntheticLog(
        SyntheticConfig(
            items=items,
            queries=queries,
            clicks=clicks,
            zipf=zipf,
            topics=topics,
            off_topic=off_topic,
            seed=seed,
        )
    )
    found = pairs(log)
    assert len(found) == len(np.unique(found, axis=0)) == clicks
    assert (np.unique(found[:, 0]) == np.arange(queries)).all()
    assert found[:, 1].min() >= 0
    assert found[:, 1].max() < items
    if clicks >= 2 * items:
        assert len(np.unique(found[:, 1])) == items
    texts = [text for block in log.blocks() for text in log.query_texts(block)]
    assert len(texts) == len(set(texts)) == queries
    assert len(set(log.item_texts(np.arange(items)))) == items


def test_the_folder_reads_back_and_novel_items_have_no_training_clicks(tmp_path):
    counts, folder = written(tmp_path / "log", items=600, queries=900, clicks=3_600)
    data = read_folder(folder)
    report = check_folder(folder)
    assert report.ok
    assert report.counts["warning"] == 0
    assert counts == {
        "items": len(data.items),
        "novel": int(data.novel_mask.sum()),
        "train queries": len(data.train),
        "test queries": len(data.test),
        "train clicks": data.train.clicks.nnz,
        "test clicks": data.test.clicks.nnz,
    }
    assert counts["items"] == 600
    assert counts["novel"] == 60
    assert counts["train queries"] + counts["test queries"] == 900
    assert counts["test queries"] >= 0.1 * 900
    assert np.bincount(data.train.clicks.indices, minlength=600)[data.novel_mask].sum() == 0
    assert np.bincount(data.test.clicks.indices, minlength=600)[data.novel_mask].sum() > 0
    assert (np.diff(data.train.clicks.indptr) > 0).all()
    every = pairs(SyntheticLog(SyntheticConfig(items=600, queries=900, clicks=3_600)))
    # With one click a query, some click a novel item only: they are in the test part.
    _, folder = written(tmp_path / "single", items=600, queries=900, clicks=900)
    assert (np.diff(read_folder(folder).train.clicks.indptr) > 0).all()
    hidden = data.novel_mask[every[:, 1]].sum() - data.test.clicks[:, data.novel_mask].nnz
    assert counts["train clicks"] + counts["test clicks"] + hidden == 3_600


def test_the_same_seed_writes_the_same_bytes_and_another_one_other_clicks(tmp_path):
    options = {"items": 300, "queries": 400, "clicks": 1_500}
    first, again, other = (
        {
            path.name: path.read_bytes()
            for path in sorted(written(tmp_path / name, seed=seed, **options)[1].iterdir())
        }
        for name, seed in (("first", 3), ("again", 3), ("other", 4))
    )
    assert first == again
    assert all(first[name] != other[name] for name in first)


def test_blocks_do_not_change_the_log(monkeypatch):
    config = SyntheticConfig(items=2_000, queries=2_500, clicks=10_000)
    whole = SyntheticLog(config)
    found, texts = pairs(whole), [text for block in whole.blocks() for text in whole.query_texts(block)]
    monkeypatch.setattr("metaxc.data.synthetic.BLOCK_CLICKS", 700)
    parts = SyntheticLog(config)
    assert len(list(parts.blocks())) > 10
    assert (np.unique(pairs(parts), axis=0) == np.unique(found, axis=0)).all()
    assert [text for block in parts.blocks() for text in parts.query_texts(block)] == texts


@pytest.mark.parametrize("zipf", [0.7, 1.0])
def test_popularity_follows_zipfs_law(zipf):
    config = SyntheticConfig(items=20_000, queries=200_000, clicks=1_000_000, zipf=zipf)
    counts = np.sort(np.bincount(pairs(SyntheticLog(config))[:, 1], minlength=20_000))[::-1]
    ranks = np.arange(100, 2_000)
    slope = np.polyfit(np.log(ranks + 1), np.log(counts[ranks] - 1), 1)[0]
    assert slope == pytest.approx(-zipf, abs=0.03)
    assert counts[0] <= 0.01 * 200_000 + 1


def test_clicks_stay_in_the_topic_apart_from_the_share_that_is_asked_for():
    config = SyntheticConfig(items=5_000, queries=20_000, clicks=60_000, zipf=0.3, off_topic=0.2)
    log = SyntheticLog(config)
    found = pairs(log)
    position_of = np.argsort(log.row_of)
    topic_of_query = np.searchsorted(log.topic_queries, found[:, 0], side="right") - 1
    outside = (topic_of_query != log.topic_of[position_of[found[:, 1]]]).mean()
    assert outside == pytest.approx(0.2, abs=0.01)


def test_queries_share_words_with_the_items_of_their_topic_and_some_name_one():
    log = SyntheticLog(SyntheticConfig(items=1_000, queries=2_000, clicks=8_000, off_topic=0.0))
    items = log.item_texts(np.arange(1_000))
    block = next(log.blocks())
    texts = log.query_texts(block)
    named = [items[position].split()[0] in text for text, position in zip(texts, block.named, strict=True)]
    assert np.mean(named) == pytest.approx(0.3, abs=0.05)
    clickers = {(query, position) for query, position in zip(block.clickers, block.clicked, strict=True)}
    assert all((query, position) in clickers for query, position in enumerate(block.named))
    topic_words = {word for text in items[:50] for word in text.split()[1:3]}
    first = [text for row, text in enumerate(texts) if row < log.topic_queries[1]]
    assert all(topic_words & set(text.split()) for text in first)


def test_a_log_with_times_is_split_by_time(tmp_path):
    _, folder = written(tmp_path / "log", items=400, queries=600, clicks=2_400, days=30)
    data = read_folder(folder)
    assert data.test is None
    assert data.novel is None
    assert data.train.clicks.nnz == 2_400
    assert (data.train.item_times >= data.items.first_seen).all()
    assert data.train.times.max() - data.items.first_seen.min() <= 30 * 86_400
    made, _ = split(data, novel=0.1, by="time", seed=0)
    assert made.items.first_seen[made.novel_mask].min() >= made.items.first_seen[~made.novel_mask].max()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queries": 100, "clicks": 99}, "every query has at least one"),
        ({"items": 20, "queries": 20, "clicks": 101}, "a quarter of all pairs"),
        ({"items": 20, "topics": 21}, "at most one for each"),
    ],
)
def test_sizes_that_do_not_fit_together_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        SyntheticConfig(**options)


def test_words_differ_and_common_words_are_no_made_up_ones():
    numbers = np.concatenate([np.arange(5_000), 70**3 * np.arange(1, 200), 70**3 * np.arange(1, 200) + 1])
    words = make_words(numbers)
    assert len(set(words)) == len(words)
    assert not set(COMMON) & {first + second for first in SYLLABLES for second in SYLLABLES}
    tails = [common_words(number) for number in range(len(COMMON) ** 2 * 2)]
    assert len(set(tails)) == len(tails)


def test_shares_sum_up():
    assert round_to_sum(np.array([0.4, 0.4, 0.4, 2.8])).tolist() == [0, 1, 0, 3]
    most = np.array([5, 1, 10])
    assert share_out(16, np.array([1.0, 1.0, 1.0]), most).tolist() == [5, 1, 10]
    assert share_out(9, np.array([1.0, 7.0, 1.0]), most).sum() == 9
