"""What may become an item of a catalog."""

from copy import copy

import pytest

from metaxc.catalog import Catalog, ConflictError, NewItem
from metaxc.catalog.item_rules import parse_items, validate_items
from metaxc.data import Texts
from metaxc.errors import DataError


def test_items_of_one_id_must_be_the_same():
    same = [NewItem("a", "text", ("x", "y")), NewItem("a", "text", ("y", "x", "x"))]
    assert validate_items(same) == [NewItem("a", "text", ("x", "y"))]
    with pytest.raises(ConflictError, match="'a'"):
        validate_items([NewItem("a", "text"), NewItem("a", "other")])


def test_fields_are_part_of_the_content_and_true_is_not_1():
    assert validate_items(
        [NewItem("a", "x", (), {"p": 2.0}), NewItem("a", "x", (), {"p": 2, "q": None})]
    ) == [NewItem("a", "x", (), {"p": 2})]
    for one, other in (({"p": 1}, {"p": True}), ({"p": 1}, {}), ({"p": "1"}, {"p": 1})):
        with pytest.raises(ConflictError):
            validate_items([NewItem("a", "x", (), one), NewItem("a", "x", (), other)])


def test_json_lines_become_items_or_name_the_wrong_line():
    lines = ['{"id": "a", "text": "x", "tags": ["t"], "fields": {"p": 1}}', '{"id": "b", "text": "y"}']
    assert parse_items(lines) == [NewItem("a", "x", ("t",), {"p": 1}), NewItem("b", "y")]
    for wrong in ('{"id": "c"}', "no JSON", "[1]", '{"id": "c", "text": "x", "tags": null}'):
        with pytest.raises(DataError, match="line 3"):
            parse_items([*lines, wrong])
    with pytest.raises(DataError, match="must be a list"):
        parse_items(['{"id": "c", "text": "x", "tags": "red"}'])


@pytest.mark.parametrize("id", ["a\0b", "..", "a/../b", "x" * 501])
def test_a_model_with_an_id_that_http_cannot_address_makes_no_catalog(folder, model, id):
    other = copy(model)
    other.items = Texts([id, *model.items.ids[1:]], model.items.texts)
    with pytest.raises(DataError, match="An item of the model cannot be in a catalog: The id"):
        Catalog.create(folder, other)
    assert not folder.exists()
