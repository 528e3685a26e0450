import pytest

from metaxc.index import ivf, scan


@pytest.fixture
def small_scan(monkeypatch):
    """Codes are used from a few dozen vectors on, so that small tests cover them."""
    monkeypatch.setattr(scan, "MIN_VECTORS", 64)
    monkeypatch.setattr(scan, "SHORTLIST", 60)
    monkeypatch.setattr(scan, "MAX_EXACT_ALLOWED", 20)
    monkeypatch.setattr(scan, "SHORTLIST_DIVISOR", 1)


@pytest.fixture
def small_ivf(monkeypatch):
    """Lists are used from a few dozen vectors on, so that small tests cover them."""
    monkeypatch.setattr(ivf, "MIN_VECTORS", 64)
    monkeypatch.setattr(ivf, "MAX_EXACT_ALLOWED", 20)
    monkeypatch.setattr(ivf, "SHORTLIST_DIVISOR", 1)
