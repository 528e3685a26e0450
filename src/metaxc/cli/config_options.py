"""Command-line options taken from configuration models, so that no default and no description is written twice.

A command names the fields that it offers. Each becomes an option with the field's type, default and description; what
the user gives arrives as one nested dictionary that the model validates.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined


@dataclass(frozen=True)
class ConfigOption:
    """A field of a configuration model as an option.

    Args:
        path: The field's name, with dots for a field of a nested model: `adapter.epochs`.
        flags: The option's names; `--` and the last part of the path if empty.
        help: In place of the field's description.
        default: Shown in place of the field's default, where another place decides it.
    """

    path: str
    flags: tuple[str, ...] = ()
    help: str | None = None
    default: str | None = None

    @property
    def parameter(self) -> str:
        """The name of the function's parameter."""
        return self.path.replace(".", "_")


def with_config_options(model: type[BaseModel], *options: ConfigOption) -> Callable[[Any], Any]:
    """Decorate a typer command: it gets these options, and is called with `given`, the nested dictionary of those that
    the user has set.

    Example:
        >>> @with_config_options(IreneConfig, ConfigOption("neighbours", ("--neighbours", "-K")))  # doctest: +SKIP
        ... def train(data: Path, given: dict[str, Any]) -> None:
        ...     config = IreneConfig.model_validate(given)
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(**arguments: Any) -> Any:
            given: dict[str, Any] = {}
            for option in options:
                value = arguments.pop(option.parameter)
                if value is not None:
                    *parents, name = option.path.split(".")
                    place = given
                    for parent in parents:
                        place = place.setdefault(parent, {})
                    place[name] = value
            return command(**arguments, given=given)

        signature = inspect.signature(command, eval_str=True)
        own = [value for name, value in signature.parameters.items() if name != "given"]
        more = [_parameter(model, option) for option in options]
        run.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        run.__annotations__ = {value.name: value.annotation for value in (*own, *more)}
        return run

    return decorate


def _parameter(model: type[BaseModel], option: ConfigOption) -> inspect.Parameter:
    field = _field(model, option.path)
    kind, choices = _type(field.annotation)
    name = option.path.rpartition(".")[2].replace("_", "-")
    flags = option.flags or (f"--{name}/--no-{name}" if kind is bool else f"--{name}",)
    words = option.help or field.description or ""
    words = words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")
    if choices:
        words += f" One of: {', '.join(choices)}."
    default = option.default if option.default is not None else _shown(field)
    if default:
        words += f"  [default: {default}]"
    info = typer.Option(*flags, help=words, show_default=False)
    return inspect.Parameter(
        option.parameter,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, info],
    )


def _field(model: type[BaseModel], path: str) -> FieldInfo:
    name, _, rest = path.partition(".")
    field = model.model_fields[name]
    if not rest:
        return field
    assert isinstance(field.annotation, type)
    assert issubclass(field.annotation, BaseModel)
    return _field(field.annotation, rest)


def _type(annotation: Any) -> tuple[type, list[str]]:
    """The type that typer parses, and the choices where there are only some."""
    if get_origin(annotation) is Literal:
        return str, [str(value) for value in get_args(annotation)]
    if get_origin(annotation) in (Union, UnionType):
        parts = [_type(part) for part in get_args(annotation) if part is not NoneType]
        return parts[0]
    if annotation in (str, int, float, bool):
        return annotation, []
    return str, []


def _shown(field: FieldInfo) -> str:
    default = field.default
    if default is PydanticUndefined or default is None:
        return ""
    if isinstance(default, bool):
        return "yes" if default else "no"
    return f"{default:g}" if isinstance(default, float) else str(default)
