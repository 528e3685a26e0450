"""A limit on log lines that clients can cause: a stranger must not be able to fill the disk with them."""

from __future__ import annotations

import logging
import time

LIMITED_LOGGERS = ("asyncio", "uvicorn.error", "metaxc.serve")
PERIOD = 60.0  # seconds
MOST_PER_PERIOD = 5  # lines from one place in the code: enough to see whether they are alike


class LogLimit(logging.Filter):
    """Passes a few lines per minute from each place in the code, and counts the others.

    Lines are counted by where they come from and not by what they say: that is a closed set, whatever clients send.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[tuple[str, int, type | None], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a line. The first one of a new period says how many were dropped in the one before."""
        error = record.exc_info[0] if record.exc_info else None
        place = record.pathname, record.lineno, error
        now = time.monotonic()
        started, count = self._passed.get(place, (-PERIOD, 0))
        if now - started >= PERIOD:
            if count > MOST_PER_PERIOD:
                record.msg = (
                    f"{record.getMessage()} ({count - MOST_PER_PERIOD:,} more like this were not logged)"
                )
                record.args = ()
            started, count = now, 0
        self._passed[place] = started, count + 1
        return count < MOST_PER_PERIOD


def limit_logs() -> None:
    """Limit the loggers that report what clients do; a second call changes nothing."""
    for name in LIMITED_LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, LogLimit) for one in logger.filters):
            logger.addFilter(LogLimit())
