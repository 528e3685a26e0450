"""What is passed on to the search for a calibration."""

from types import SimpleNamespace

import numpy as np
import pytest

from metaxc.emmett import Calibration
from metaxc.tuning import Setting, choices


@pytest.mark.parametrize(
    ("queries", "expected"), [((2_000, 2_000, 1_000), None), ((2_000, 2_000, 999), 0.0), ((300,), 0.0)]
)
def test_more_is_spent_where_more_is_gained_only_on_large_folds(queries, expected, monkeypatch):
    given = []
    monkeypatch.setattr(choices, "choose_calibration", lambda *args, **rest: given.append(rest))
    folds = [SimpleNamespace(rows=np.zeros((count, 5), np.int64)) for count in queries]
    parts = SimpleNamespace(exposure=None, exposure_cost=0.5)
    choices._calibrate(parts, folds, None, Setting(Calibration(), 1.0), free=True)
    assert [one["gain_share"] for one in given] == [expected]
    assert given[0]["cost"] == 0.5
