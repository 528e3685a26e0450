"""The study gives what it gave before the code was consolidated, to the last digit."""

from metaxc.research.theory import Study, run_study

TINY = Study(
    dim=80, items=120, fewer=(60,), neighbours=(6,), depths=(2,), held_out=60, queries=500,
    held_out_queries=200, steps=4, seeds=2,
)  # fmt: skip


def test_study(world, golden):
    data, encoder = world.dataset, world.encoder
    queries = encoder.encode_queries(data.train.queries.texts)
    rows = run_study(queries, encoder.encode_items(data.items.texts), data.train.clicks, TINY)
    golden("study", [row.to_dict() for row in rows])
