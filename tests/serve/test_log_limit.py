"""The limit on log lines that clients can cause."""

import logging

from metaxc.serve import log_limit
from metaxc.serve.log_limit import LogLimit, limit_logs


def test_a_line_from_one_place_is_logged_a_few_times_per_minute(caplog, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(log_limit.time, "monotonic", lambda: now)
    logger = logging.getLogger("a logger of this test")
    limit = LogLimit()
    logger.addFilter(limit)

    def complain(times):
        for number in range(times):
            logger.warning("bad request %d", number)

    complain(1000)
    assert [record.getMessage() for record in caplog.records] == [f"bad request {n}" for n in range(5)]
    logger.warning("something else")
    assert caplog.records[-1].getMessage() == "something else"
    now += 61
    complain(2)
    assert [record.getMessage() for record in caplog.records[-2:]] == [
        "bad request 0 (995 more like this were not logged)",
        "bad request 1",
    ]
    assert len(limit._passed) == 2


def test_loggers_get_one_limit_each():
    limit_logs()
    limit_logs()
    for name in log_limit.LIMITED_LOGGERS:
        assert sum(isinstance(one, LogLimit) for one in logging.getLogger(name).filters) == 1
