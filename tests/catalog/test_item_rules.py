"""What may become an item of a catalog."""

from copy import copy

import pytest

from metaxc.catalog import Catalog, ConflictError, NewItem
from metaxc.catalog.item_rules import validate_items
from metaxc.data import Texts
from metaxc.errors import DataError


def test_items_of_one_id_must_be_the_same():
    same = [NewItem("a", "text", ("x", "y")), NewItem("a", "text", ("y", "x", "x"))]
    assert validate_items(same, 2) == [NewItem("a", "text", ("x", "y"))]
    with pytest.raises(ConflictError, match="'a'"):
        validate_items([NewItem("a", "text"), NewItem("a", "other")], 2)


def test_fields_are_part_of_the_content_and_true_is_not_1():
    same = [NewItem("a", "x", (), {"p": 2.0}), NewItem("a", "x", (), {"p": 2, "q": None})]
    assert validate_items(same, 2) == [NewItem("a", "x", (), {"p": 2})]
    for one, other in (({"p": 1}, {"p": True}), ({"p": 1}, {}), ({"p": "1"}, {"p": 1})):
        with pytest.raises(ConflictError):
            validate_items([NewItem("a", "x", (), one), NewItem("a", "x", (), other)], 2)


def test_the_vector_of_an_item_is_part_of_its_content():
    item = NewItem("a", "text", vector=[3.0, 4.0])
    [valid] = validate_items([item, NewItem("a", "text", vector=(0.3, 0.4))], 2)
    assert valid.vector.tolist() == pytest.approx([0.6, 0.8]), "a unit vector"
    for other in ([4.0, 3.0], None):
        with pytest.raises(ConflictError, match="'a'"):
            validate_items([item, NewItem("a", "text", vector=other)], 2)
    with pytest.raises(DataError, match="item's vector has the wrong length"):
        validate_items([item], 3)


@pytest.mark.parametrize("id", ["a\0b", "..", "a/../b", "x" * 501])
def test_a_model_with_an_id_that_http_cannot_address_makes_no_catalog(folder, model, id):
    other = copy(model)
    other.items = Texts([id, *model.items.ids[1:]], model.items.texts)
    with pytest.raises(DataError, match="An item of the model cannot be in a catalog: The id"):
        Catalog.create(folder, other)
    assert not folder.exists()
