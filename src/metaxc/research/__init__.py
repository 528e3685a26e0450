"""Research code, imported by the CLI only: baselines, the paper's tables, the report, the theory (extra `research`)."""
