"""A running service with a few items, for the retrievers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from metaxc.catalog import Catalog, NewItem
from metaxc.classifiers import Classifiers
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.emmett import Emmett
from metaxc.encoders import Pretrained
from metaxc.generators import Combine
from metaxc.serve.client import Client
from metaxc.serve.serve_settings import ServeSettings

sys.path.append(str(Path(__file__).parent.parent / "serve"))
TOKENS = {"read": "reading-is-all-it-may", "write": "writing-is-what-it-may"}


@pytest.fixture(scope="session")
def service(tiny, shop, tmp_path_factory) -> Iterator[str]:
    """The address of a service that needs a token; two new items are fruit with a price, one of them "sour"."""
    from running_service import running

    encoder, observed = Pretrained(tiny), np.arange(20)
    embeddings = encoder.encode_items(shop.items.texts[:20])
    weights = normalize_rows(np.random.default_rng(0).normal(size=(20, encoder.dim)))
    classifiers = Classifiers(weights, np.full(20, 5))
    model = Emmett(encoder, classifiers, embeddings, Combine(0.5, 0.1), shop.items, observed)
    catalog = Catalog.create(tmp_path_factory.mktemp("integrations") / "catalog", model)
    catalog.add(
        [
            NewItem("a-pear", "young pear", ("fruit",), {"price": 3}),
            NewItem("a-plum", "old plum", ("fruit", "sour"), {"price": 5, "brand": "x"}),
        ]
    )
    with running(catalog, ServeSettings(tokens=TOKENS)) as url:
        yield url


@pytest.fixture(scope="session")
def token() -> str:
    return TOKENS["read"]


@pytest.fixture
def expect(service, token):
    """Ids and scores that the client finds for a query with these arguments of `Client.search`."""

    def search(query: str, **arguments) -> list[tuple[str, float]]:
        with Client(service, token) as client:
            hits = client.search([query], **arguments).answers[0].hits
        return [(hit.id, pytest.approx(hit.score)) for hit in hits]

    return search
