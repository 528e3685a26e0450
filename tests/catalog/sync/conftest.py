"""Vector stores that run while tests need them."""

from __future__ import annotations

import pytest
from sync_places import NAMES, Place
from vector_stores import PACKAGES, STORES


@pytest.fixture(scope="session")
def running():
    """Vector stores by kind, started when a test first asks for one."""
    stores = {}

    def start(kind):
        if kind in PACKAGES:
            pytest.importorskip(PACKAGES[kind])
        if kind not in stores:
            stores[kind] = STORES[kind]()
        return stores[kind]

    yield start
    for store in stores.values():
        store.close()


@pytest.fixture(
    params=[
        "postgresql",
        pytest.param("milvus", marks=pytest.mark.slow),  # a server that takes seconds to start
        "qdrant",
        "lance",
        "parquet",
    ]
)
def place(request, running):
    return Place(request.param, running(request.param), next(NAMES))


@pytest.fixture
def parquet(running):
    return Place("parquet", running("parquet"), next(NAMES))


@pytest.fixture
def postgresql(running):
    return Place("postgresql", running("postgresql"), next(NAMES))
