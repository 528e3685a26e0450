"""Options come from the configuration model: name, type, default, help, and what was given."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from metaxc.cli.config_options import ConfigOption, with_config_options


class Inner(BaseModel):
    epochs: int = Field(5, description="passes over the data")
    mined: bool = Field(False, description="use hard negatives")


class Outer(BaseModel):
    kind: Literal["one", "two"] = Field("one", description="what to make")
    share: float | None = Field(None, description="how much")
    inner: Inner = Field(default_factory=Inner)


@pytest.fixture
def called():
    return []


@pytest.fixture
def app(called):
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @with_config_options(
        Outer,
        ConfigOption("kind"),
        ConfigOption("share", ("--share", "-s")),
        ConfigOption("inner.epochs"),
        ConfigOption("inner.mined"),
    )
    def make(
        place: Annotated[Path, typer.Argument()],
        given: dict[str, Any],
        loud: Annotated[bool, typer.Option("--loud")] = False,
    ) -> None:
        """Make it."""
        called.append((place, loud, given))

    return app


def test_only_what_was_given_arrives_and_nested(app, called):
    runner = CliRunner()
    assert runner.invoke(app, ["here"]).exit_code == 0
    given = ["here", "--loud", "--kind", "two", "-s", "0.5", "--epochs", "7", "--mined"]
    assert runner.invoke(app, given).exit_code == 0
    assert called == [
        (Path("here"), False, {}),
        (Path("here"), True, {"kind": "two", "share": 0.5, "inner": {"epochs": 7, "mined": True}}),
    ]
    assert runner.invoke(app, ["here", "--epochs", "many"]).exit_code == 2


def test_help_has_descriptions_defaults_and_choices(app):
    words = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output.split())
    assert "Passes over the data." in words
    assert "default: 5" in words
    assert "One of: one, two." in words
    assert "default: one" in words
