"""The paper's tables as commands on any data set: rows in, JSON lines out, Markdown from those."""

from metaxc.research.bench.context import Context
from metaxc.research.bench.results import Record, Results, read_records
from metaxc.research.bench.rows import Outcome, Row, Table
from metaxc.research.bench.run import TABLES, chosen_rows, run_table, table_of

__all__ = [
    "TABLES",
    "Context",
    "Outcome",
    "Record",
    "Results",
    "Row",
    "Table",
    "chosen_rows",
    "read_records",
    "run_table",
    "table_of",
]
