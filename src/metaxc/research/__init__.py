"""For researchers: baselines, the tables of the paper, the report, the theory (extra `research`)."""
