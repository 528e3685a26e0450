"""Turns a catalog into one that an older version has written."""

import json
import sqlite3

from metaxc.catalog.schema import TAGS_SCHEMA, read_metadata, write_metadata


def make_older(catalog, number):
    """Close a catalog without fields and make it one of format 3, or of 2, which has no running sums either."""
    catalog.close()
    with sqlite3.connect(catalog.store.folder / "catalog.sqlite") as connection:
        metadata = {**read_metadata(connection), "format": str(number)}
        connection.execute("ALTER TABLE items DROP COLUMN fields")
        connection.execute(TAGS_SCHEMA)
        for key, tags in connection.execute("SELECT key, tags FROM items").fetchall():
            connection.executemany("INSERT INTO tags VALUES (?, ?)", [(tag, key) for tag in json.loads(tags)])
        if number == 2:
            del metadata["sum of click_sums"]
            connection.execute("DROP TABLE click_sums")
        connection.execute("DELETE FROM facts")
        write_metadata(connection, metadata)
    connection.close()
    (catalog.store.folder / "closed.json").unlink()
