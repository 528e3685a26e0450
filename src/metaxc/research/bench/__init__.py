"""The paper's tables for any data set: rows are run, written as JSON lines, and printed as Markdown."""

from metaxc.research.bench.context import Context
from metaxc.research.bench.results import Record, Results, read_records
from metaxc.research.bench.rows import Row, RowResult, Table
from metaxc.research.bench.running import Rerun, run_all, run_table
from metaxc.research.bench.tables import TABLES, get_table, select_rows

__all__ = [
    "TABLES",
    "Context",
    "Record",
    "Rerun",
    "Results",
    "Row",
    "RowResult",
    "Table",
    "get_table",
    "read_records",
    "run_all",
    "run_table",
    "select_rows",
]
