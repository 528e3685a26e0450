from metaxc.errors import DataError, MetaxcError


def test_an_error_answers_the_four_questions():
    error = DataError("It failed", got="this", expected="that", fix="do so")
    assert str(error) == "It failed\n  got: this\n  expected: that\n  to fix: do so"
    assert isinstance(error, MetaxcError)
    assert str(DataError("Only what")) == "Only what"
