"""Packages of optional extras, imported when they are needed, with the install command where they are missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from metaxc.errors import MetaxcError


def import_extra(module: str, extra: str) -> Any:
    """Import a module that the extra `extra` installs."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MetaxcError(
            f"The package {module.split('.')[0]} is not installed",
            got=str(error),
            expected=f"the packages of the extra {extra!r}",
            fix=f"pip install 'metaxc[{extra}]'",
        ) from error


def has_extra(module: str) -> bool:
    """Whether a module of an extra is installed."""
    return find_spec(module) is not None
