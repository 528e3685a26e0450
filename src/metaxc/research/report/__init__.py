"""A model on one page: what it reaches, where it gains and loses, what it costs, where it comes from.

Numbers (`gather`) know nothing of HTML; plots and page (`render`) know nothing of models.
"""

from metaxc.research.report.bench_section import BenchRow, read_bench
from metaxc.research.report.gather import Report, gather
from metaxc.research.report.provenance import Provenance, provenance
from metaxc.research.report.render import render

__all__ = ["BenchRow", "Provenance", "Report", "gather", "provenance", "read_bench", "render"]
