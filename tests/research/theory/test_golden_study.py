"""The study gives what it gave before the code was consolidated, to the last digit."""


def test_study(rows, golden):
    golden("study", [row.to_dict() for row in rows])
