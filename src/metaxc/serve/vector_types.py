"""Vectors in requests of the HTTP API: an entry of a list is a text, or an object with its vector.

How long a vector has to be depends on the model that is served, so only the catalog can check it
(`metaxc.catalog.vector_rules`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, create_model
from pydantic import Tag as UnionTag

from metaxc.arrays import Floats
from metaxc.catalog.vector_rules import read_numbers

MOST_NUMBERS = 1 << 14  # of a vector: more than encoders give
TEXT, VECTOR = "(text)", "(vector)"
"""Kinds of an entry; in round brackets, because they are no fields (`metaxc.serve.http_errors`)."""

Number = Annotated[float, Field(allow_inf_nan=False)]
Vector = Annotated[list[Number], Field(min_length=1, max_length=MOST_NUMBERS)]
VECTOR_FIELD: Any = Field(
    None,
    description="The embedding by the encoder that the model was trained with, `dim` of /v1/about numbers. Its "
    "direction counts: it is made a unit vector. Without one, the text is encoded.",
)


class TextVector(BaseModel):
    """An embedding in place of a text, or beside it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    vector: Vector
    text: str | None = None


def given_text(one: str | TextVector) -> str:
    """What the encoder has to read of a text or vector: nothing of a vector."""
    return one if isinstance(one, str) else ""


def given_value(one: str | TextVector) -> str | Floats:
    """The text, or the vector as an array."""
    return one if isinstance(one, str) else read_numbers(one.vector, "vector")


def vectors_among(given: Sequence[str | TextVector]) -> list[list[float]]:
    """The vectors among texts and vectors."""
    return [one.vector for one in given if not isinstance(one, str)]


def or_vector(text: Any, name: str) -> Any:
    """The type of an entry that is a text or a vector, which may have a text beside it.

    Args:
        text: The type of a text.
        name: What the API calls an object with a vector.
    """
    vector = create_model(name, __base__=TextVector, text=(text | None, None))
    return Annotated[
        Annotated[text, UnionTag(TEXT)] | Annotated[vector, UnionTag(VECTOR)],
        Discriminator(lambda one: TEXT if isinstance(one, str) else VECTOR),
    ]


def needs_one(*names: str) -> dict[str, Any]:
    """What the schema of an object says of which at least one of these fields is required."""
    return {"anyOf": [{"required": [name]} for name in names]}
