"""A TOML file with everything that `metaxc serve` can be told: what is served, and all `ServeSettings`.

    model = "model"            # what the options of the command say, by their names
    read_only = false

    [network]                  # one table for each group of ServeSettings
    port = 8765

Options of the command and the tokens in the environment replace what the file says. Paths are relative to the folder of
the file. `metaxc serve --print-config` prints a file with every setting and its default (deploy/metaxc.toml).
"""

from __future__ import annotations

import json
import stat
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from metaxc.errors import ConfigError
from metaxc.serve.serve_settings import ServeSettings, read_tokens

INTRODUCTION = """\
# Everything that `metaxc serve --config metaxc.toml` can be told. Each line is the default, or an example where there
# is none; take away the "#" before a setting to change it. Paths are relative to this file. Options of the command and
# the tokens in $METAXC_READ_TOKEN and $METAXC_WRITE_TOKEN replace what is said here.
"""
EXAMPLES = {
    "model": "model",
    "catalog": "model.catalog",
    "models": "models",
    "watch_models": "models",
    "data": "data",
    "base": "/srv/encoders/minilm",
    "cache": "/var/cache/metaxc",
    "read": "sixteen-or-more-random-characters",
    "write": "other-sixteen-or-more-characters",
}
"""What stands in the rendered file where there is no default."""


class ServeSources(BaseModel):
    """What is served: the options of `metaxc serve` that are no settings of the service."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Path | None = Field(None, description="model folder")
    catalog: Path | None = Field(None, description="catalog folder; MODEL.catalog if not given")
    models: Path | None = Field(
        None,
        description="folder of the models that the service may be switched to; that of the model if not given",
    )
    watch_models: Path | None = Field(
        None,
        description="folder that is watched for new models, to which the service is switched; the one that the link "
        "current in it names, or else the newest",
    )
    data: Path | None = Field(None, description="data set folder, for the known queries of a new catalog")
    base: str | None = Field(None, description="folder of the pretrained weights, when they have moved")
    cache: Path | None = Field(None, description="folder for embeddings")
    threads: int = Field(
        0, ge=0, description="CPU threads per search and per write; 0 uses half of the cores"
    )
    read_only: bool = Field(False, description="reject all changes")


def read_config_file(path: Path) -> dict[str, Any]:
    """The content of a configuration file; an unknown name in it is a `ConfigError` that suggests a known one."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            "The configuration file cannot be read",
            got=f"{path}: {error}",
            expected="a TOML file in UTF-8",
            fix="start from what metaxc serve --print-config prints",
        ) from error
    known = [*setting_names()]
    for name in _names(content):
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise ConfigError(
                "Unknown setting in the configuration file",
                got=f"{path}: {name}",
                expected="a setting that metaxc serve --print-config prints",
                fix=f"did you mean {near[0]}?" if near else "correct or remove the line",
            )
    for name in ("model", "models", "watch_models", "catalog", "data", "cache"):
        if isinstance(content.get(name), str):
            content[name] = str(path.parent / content[name])
    return content


def build_settings(
    content: Mapping[str, Any], given: Mapping[str, Any], path: Path | None = None
) -> tuple[ServeSources, ServeSettings]:
    """What is served, and the settings of the service.

    Args:
        content: What `read_config_file` returned; empty without a file.
        given: The options of the command, which replace what the file says: those of a group of settings as a mapping
            under the group's name.
        path: The file, for errors.
    """
    merged: dict[str, Any] = {**content}
    for name, value in given.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, Mapping) else value
    tokens = {**merged.pop("tokens", {}), **read_tokens().model_dump(exclude_none=True)}
    groups = {name: merged.pop(name) for name in ServeSettings.model_fields if name in merged}
    try:
        return ServeSources.model_validate(merged), ServeSettings.model_validate({**groups, "tokens": tokens})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        in_file = path is not None and _find(content, name) == first["input"]
        shown = f"{path}: {name}" if in_file else f"--{name.split('.')[-1].replace('_', '-')}"
        raise ConfigError(
            f"Invalid value for {shown}", got=repr(first["input"]), expected=first["msg"]
        ) from error


def render_config_file() -> str:
    """A configuration file with every setting and its default, to start from."""
    lines = [INTRODUCTION]
    for name, field in ServeSources.model_fields.items():
        lines += [
            *_comment(field.description or ""),
            _render(name, field.get_default(), "" if name == "model" else "#"),
        ]
        lines.append("")
    for group, field in ServeSettings.model_fields.items():
        assert isinstance(field.annotation, type)
        lines += [*_comment((field.annotation.__doc__ or "").split("\n\n")[0]), f"[{group}]"]
        for name, inner in field.annotation.model_fields.items():
            lines += [*_comment(inner.description or ""), _render(name, inner.get_default(), "#")]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _render(name: str, default: object, mark: str) -> str:
    """A line of a configuration file. The strings of JSON, its numbers and its lists of strings are those of TOML."""
    value = EXAMPLES[name] if default is None else list(default) if isinstance(default, tuple) else default
    return f"{mark}{name} = {json.dumps(value)}"


def _comment(text: str) -> list[str]:
    text = " ".join(text.split())
    sentence = f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
    return textwrap.wrap(sentence, 118, initial_indent="# ", subsequent_indent="# ")


def tokens_are_exposed(content: Mapping[str, Any], path: Path) -> bool:
    """Whether a file has tokens and other users of this machine can read it."""
    return bool(content.get("tokens")) and bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def setting_names() -> Iterator[str]:
    """The names that a configuration file can have; those of a group with its name before them."""
    yield from ServeSources.model_fields
    for name, field in ServeSettings.model_fields.items():
        yield name
        assert isinstance(field.annotation, type)
        yield from (f"{name}.{inner}" for inner in field.annotation.model_fields)


def _names(content: Mapping[str, Any]) -> Iterator[str]:
    for name, value in content.items():
        yield name
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in value)


def _find(content: Mapping[str, Any], name: str) -> object:
    found: Any = content
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
