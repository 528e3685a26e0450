"""Packages that only some work needs: imported when that work begins, with the install line where they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from metaxc.errors import MetaxcError


def needed(module: str, extra: str) -> Any:
    """The module, from a package of the extra `extra`."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MetaxcError(
            f"The package {module.split('.')[0]} is not installed",
            got=str(error),
            expected=f"the packages of the extra {extra!r}",
            fix=f"pip install 'metaxc[{extra}]'",
        ) from error
