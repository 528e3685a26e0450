"""The rules for ids, texts, queries and tags: data set folders, the catalog and the HTTP service apply the same.

Each `validate_*` function returns its argument, normalized where it says so, or raises a `DataError`. `ID_PATTERN`,
`RESERVED_PATTERN` and `TEXT_PATTERN` express the same rules as regular expressions for the OpenAPI schema.

An id is part of a URL (`/v1/items/{id}`) and of lines of text (`clicks.tsv`, `novel.txt`). Slashes are allowed, so that
a file's path can be an id; a part `.` or `..` is not, because browsers and proxies resolve it, so that a request for
`a/../b` would reach another item.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from metaxc.errors import DataError

MOST_ID = 500
"""Characters; percent-encoded at most 6 kB of a URL, of which proxies accept 8 kB. Paths and URLs serve as ids."""

MOST_TEXT = 20_000
"""Characters; encoders read the first few hundred words."""

MOST_TAG = 100
MOST_TAGS = 50

BYTE_ORDER_MARK = "\ufeff"
CONTROL = r"\x00-\x1f\x7f-\x9f"
INVISIBLE = CONTROL + r"\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\s"
"""Control and format characters and white space: an encoder gets nothing from a text of these alone."""

ID_PATTERN = rf"^(?:[^\ufeff{CONTROL}][^{CONTROL}]*)?[^{INVISIBLE}][^{CONTROL}]*$"
RESERVED_PATTERN = r"(?:^|/)\.\.?(?:/|$)"
"""Parts of a path that browsers and proxies resolve."""

TEXT_PATTERN = rf"^[^\x00]*[^{INVISIBLE}][^\x00]*$"

_CONTROL = re.compile(f"[{CONTROL}]")
_RESERVED = re.compile(RESERVED_PATTERN)
_VISIBLE = re.compile(f"[^{INVISIBLE}]")
INVALID = re.compile("[\x00\ud800-\udfff]")
"""What no text may contain: NUL characters and lone surrogates."""


def validate_id(id: str) -> str:
    """The id of an item or a query: visible, at most `MOST_ID` characters, no control characters, no leading
    byte-order mark, and no part `.` or `..` between slashes."""
    return validate_name(id, "id", MOST_ID)


def validate_tag(tag: str) -> str:
    """A tag: the rules of an id, at most `MOST_TAG` characters."""
    return validate_name(tag, "tag", MOST_TAG)


def validate_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """An item's tags, at most `MOST_TAGS`; returned stripped, sorted and without duplicates."""
    if isinstance(tags, str):
        raise DataError(
            "Tags must be a list", got=repr(tags), expected="a list of strings", fix=f"pass [{tags!r}]"
        )
    valid = [validate_tag(tag) for tag in tags]
    if len(valid) > MOST_TAGS:
        raise DataError(
            "Too many tags", got=len(valid), expected=f"at most {MOST_TAGS}", fix="remove some tags"
        )
    return tuple(sorted({tag.strip() for tag in valid}))


def validate_text(text: str, what: str = "text") -> str:
    """The text of an item or a query: at most `MOST_TEXT` characters, at least one of them visible.

    Args:
        text: The text.
        what: Names it in the error.
    """
    return _validate_string(text, what, MOST_TEXT)


def validate_query(query: str) -> str:
    """A query: the rules of a text."""
    return validate_text(query, "query")


def validate_name(name: str, what: str, most: int) -> str:
    """A name by the rules of an id, at most `most` characters; `what` names it in the error."""
    _validate_string(name, what, most)
    if _CONTROL.search(name) or name.startswith(BYTE_ORDER_MARK):
        raise DataError(
            f"The {what} contains control characters",
            got=repr(name),
            expected="printable characters only",
            fix="remove line breaks, tabs and other control characters",
        )
    if _RESERVED.search(name):
        raise DataError(
            f"The {what} cannot be part of a URL",
            got=repr(name),
            expected="no part . or .. between slashes, because browsers and proxies resolve it",
            fix="rename it",
        )
    return name


def _validate_string(text: str, what: str, most: int) -> str:
    if not isinstance(text, str):
        raise DataError(f"The {what} is not a string", got=type(text).__name__, expected="a string")
    if not _VISIBLE.search(text):
        raise DataError(
            f"The {what} is empty", got=repr(text[:80]), expected="at least one visible character"
        )
    if len(text) > most:
        raise DataError(
            f"The {what} is too long",
            got=f"{len(text):,} characters",
            expected=f"at most {most:,}",
            fix="shorten it",
        )
    if INVALID.search(text):
        raise DataError(
            f"The {what} contains invalid Unicode",
            got=repr(text[:80]),
            expected="no NUL characters and no lone surrogates",
            fix="decode the source as UTF-8 and remove NUL characters",
        )
    return text
