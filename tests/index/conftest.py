import pytest

from metaxc.index import scan


@pytest.fixture
def small_scan(monkeypatch):
    """Codes come into play with a few dozen vectors, so that small worlds test them too."""
    monkeypatch.setattr(scan, "FEWEST", 64)
    monkeypatch.setattr(scan, "SHORTLIST", 60)
    monkeypatch.setattr(scan, "FEW_ALLOWED", 20)
    monkeypatch.setattr(scan, "LARGEST_SHARE", 1)
