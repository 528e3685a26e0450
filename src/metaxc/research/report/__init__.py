"""A model on one page: its accuracy, where it gains and loses, its latency and its provenance.

The numbers (`report_data`) do not depend on HTML; charts and page do not depend on models.
"""

from metaxc.research.report.page import Provenance, collect_provenance, render_page
from metaxc.research.report.report_data import BenchRow, Report, build_report, read_bench_rows

__all__ = [
    "BenchRow",
    "Provenance",
    "Report",
    "build_report",
    "collect_provenance",
    "read_bench_rows",
    "render_page",
]
