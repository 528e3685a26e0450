"""Command-line options for the fields of a config model: help text and default come from the model.

Config models live in packages whose import loads torch, and the number of threads must be set before that. So an option
names its field as a string, its own default is None ("the model's default"), and the model is imported only to print
the help text.

    @app.command(cls=ConfigCommand)
    def serve(port: Annotated[int | None, config_option("metaxc.serve.serve_settings:NetworkSettings.port")] = None):
        settings = NetworkSettings(**given_options(port=port))
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand

MARK = "config field "


def config_option(field: str, *names: str, **options: Any) -> Any:
    """A Typer option for one field of a config model.

    Args:
        field: "package.module:Model.field"; a field of a nested model is "package.module:Model.group.field".
        names: Names of the option, such as "--port"; by default the parameter's.
        options: Passed on to `typer.Option`.
    """
    return typer.Option(*names, help=f"{MARK}{field}", show_default=False, **options)


def given_options(**options: Any) -> dict[str, Any]:
    """The options that the user has given, without None, so that the defaults of the model apply. Two underscores name
    a field of a nested model: `adapter__epochs`."""
    given: dict[str, Any] = {}
    for path, value in options.items():
        if value is not None:
            *groups, name = path.split("__")
            place = given
            for group in groups:
                place = place.setdefault(group, {})
            place[name] = value
    return given


class ConfigCommand(TyperCommand):
    """A command with `config_option`s: it completes their help text when it prints it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text."""
        for parameter in self.params:
            text = getattr(parameter, "help", None) or ""
            if text.startswith(MARK):
                parameter.help = describe_field(text.removeprefix(MARK))  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def describe_field(field: str) -> str:
    """The description of a config field, followed by its default.

    Args:
        field: "package.module:Model.field", as in `config_option`.
    """
    module, _, path = field.partition(":")
    name, *groups, last = path.split(".")
    model = getattr(import_module(module), name)
    for group in groups:
        nested = model.model_fields[group].annotation
        model = next(part for part in (nested, *get_args(nested)) if hasattr(part, "model_fields"))
    info = model.model_fields[last]
    text = info.description or ""
    text = f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
    choices = [part for part in (info.annotation, *get_args(info.annotation)) if get_origin(part) is Literal]
    if choices:
        text += f" One of: {', '.join(map(str, get_args(choices[0])))}."
    default = info.get_default(call_default_factory=True)
    return text if default is None else f"{text}  [default: {default}]"
