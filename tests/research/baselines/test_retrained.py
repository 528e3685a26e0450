from __future__ import annotations

import numpy as np
import pytest
from metaxc.research.baselines.retrained import with_revealed
from scipy.sparse import csr_array

from metaxc import Irene, IreneConfig
from metaxc.data.clicks import training_clicks
from metaxc.errors import DataError
from metaxc.research.baselines import Retrained


def revealed_clicks(dataset, items, most=None) -> csr_array:
    """The training clicks on `items`, at most `most` of each."""
    dense = dataset.train.clicks.toarray()
    kept = np.zeros_like(dense)
    for item in items:
        kept[np.flatnonzero(dense[:, item])[:most], item] = 1
    return csr_array(kept)


def test_exactly_the_revealed_clicks_are_visible(world):
    first, second = world.dataset.novel_rows[:2]
    revealed = revealed_clicks(world.dataset, [first], most=3)
    derived = with_revealed(world.dataset, revealed)
    observed, query_rows, clicks = training_clicks(derived)
    assert first in observed
    assert second not in observed
    before, _, clicks_before = training_clicks(world.dataset)
    assert len(observed) == len(before) + 1
    assert clicks.nnz == clicks_before.nnz + 3
    column = clicks.toarray()[:, observed.tolist().index(first)]
    np.testing.assert_array_equal(query_rows[column > 0], np.flatnonzero(revealed.toarray()[:, first]))
    assert world.dataset.novel_mask[first]  # what is judged does not change


def test_all_novel_items_may_be_revealed(world):
    derived = with_revealed(world.dataset, revealed_clicks(world.dataset, world.dataset.novel_rows, 2))
    assert len(training_clicks(derived)[0]) == len(world.dataset.items)
    recipe = Irene(IreneConfig(folds=0), encoder=world.encoder)
    fitted = Retrained(recipe, revealed_clicks(world.dataset, world.dataset.novel_rows, 2)).fit(world.dataset)
    assert fitted.vectors.shape == (len(world.dataset.items), world.encoder.dim)


def test_a_revealed_item_learns_from_its_own_clicks(world):
    """A novel item clicked from another group's queries answers those once they are revealed."""
    novel = world.dataset.novel_rows[0]  # of group 0
    clicks = np.zeros(world.dataset.train.clicks.shape, np.float32)
    clicks[7 * 20 : 8 * 20, novel] = 1  # by the queries of group 7
    queries = world.dataset.test.queries.texts[7 * 4 : 8 * 4]
    recipe = Irene(IreneConfig(folds=0), encoder=world.encoder)
    before = Retrained(recipe).fit(world.dataset).scores(queries)[:, novel]
    after = Retrained(recipe, csr_array(clicks)).fit(world.dataset).scores(queries)[:, novel]
    assert (before < 0.3).all()
    assert (after > before + 0.3).all()


def test_clicks_on_observed_items_or_of_another_shape_are_errors(world):
    with pytest.raises(DataError, match="on an observed item"):
        with_revealed(world.dataset, revealed_clicks(world.dataset, [0]))
    with pytest.raises(DataError, match="do not fit"):
        with_revealed(world.dataset, csr_array((3, 3)))
