"""Which requests belong to one client, and how long a client waits."""

import math
import time

import pytest

from metaxc.errors import DataError
from metaxc.serve.callers import identify_caller, identify_client
from metaxc.serve.serve_settings import TokenSettings

NO_TOKENS, TOKENS = TokenSettings(), TokenSettings(write="w" * 20, read="r" * 20)


def scope(address="10.0.0.1", port=1, **headers):
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "client": (address, port), "headers": raw}


def test_a_client_is_a_token_at_an_address():
    known = identify_client(scope(authorization=f"Bearer {'w' * 20}"), TOKENS)
    assert identify_client(scope(port=2, authorization=f"bEARER   {'w' * 20} "), TOKENS) == known
    assert identify_client(scope(authorization=f"Bearer {'r' * 20}"), TOKENS) != known
    assert identify_client(scope("10.0.0.2", authorization=f"Bearer {'w' * 20}"), TOKENS) != known


def test_an_invented_token_makes_no_other_client_where_none_is_needed():
    assert identify_client(scope(authorization="Bearer 1"), NO_TOKENS) == identify_client(scope(), NO_TOKENS)
    assert identify_client({"type": "http", "client": None, "headers": []}, NO_TOKENS) == ("", "")


@pytest.mark.parametrize(
    "header", ["wait=2.5", 'respond-async; wait="2.5"', "respond-async, Wait = 2.5, x=1"]
)
def test_the_deadline_is_read_from_the_header(header):
    caller = identify_caller(scope(prefer=header), NO_TOKENS)
    assert time.perf_counter() < caller.deadline <= time.perf_counter() + 2.5
    assert caller.client == ("", "10.0.0.1")


def test_without_the_preference_there_is_no_deadline():
    assert identify_caller(scope(), NO_TOKENS).deadline == math.inf
    assert identify_caller(scope(prefer="respond-async, await=3"), NO_TOKENS).deadline == math.inf


@pytest.mark.parametrize("header", ["wait=", "wait=-1", "wait=inf", "wait=1e9", "wait=soon"])
def test_a_deadline_that_is_no_number_is_an_error(header):
    with pytest.raises(DataError, match="Prefer is invalid"):
        identify_caller(scope(prefer=header), NO_TOKENS)
