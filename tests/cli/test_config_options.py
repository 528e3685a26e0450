"""Options whose help text and default come from a config model."""

from typing import Annotated, Literal

import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from metaxc.cli.config_options import ConfigCommand, config_option, describe_field, given_options


class Inner(BaseModel):
    size: int = Field(7, description="Number of parts.")


class Outer(BaseModel):
    name: str = Field("plain", description="What to call it.")
    kind: Literal["one", "two"] | Inner = Field("one", description="what to make")
    inner: Inner = Inner()


app = typer.Typer(rich_markup_mode=None)


@app.command(cls=ConfigCommand)
def build(
    name: Annotated[str | None, config_option(f"{__name__}:Outer.name")] = None,
    size: Annotated[int | None, config_option(f"{__name__}:Outer.inner.size", "--parts")] = None,
) -> None:
    print(given_options(name=name, size=size))


def invoke(*args, app=app):
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_help_text_has_the_models_descriptions_and_defaults():
    shown = " ".join(invoke("--help").split())
    assert "What to call it. [default: plain]" in shown
    assert "--parts" in shown
    assert "Number of parts. [default: 7]" in shown


def test_only_given_options_are_passed_on():
    assert invoke().strip() == "{}"
    assert invoke("--parts", "0").strip() == "{'size': 0}"
    assert invoke("--name", "other").strip() == "{'name': 'other'}"


def test_a_field_is_described_by_its_path():
    assert describe_field(f"{__name__}:Outer.inner.size") == "Number of parts.  [default: 7]"
    assert describe_field(f"{__name__}:Outer.kind") == "What to make. One of: one, two.  [default: one]"


def test_nested_fields_are_given_nested():
    given = given_options(name="a", inner__size=3, inner__other=None)
    assert given == {"name": "a", "inner": {"size": 3}}


def test_the_model_is_not_imported_to_parse_the_options():
    other = typer.Typer()

    @other.command(cls=ConfigCommand)
    def missing(size: Annotated[int | None, config_option("no_such_module:Model.size")] = None) -> None:
        print(size)

    assert invoke("--size", "3", app=other).strip() == "3"
