"""`Irene(neighbours=5)`: options by name, as everywhere in the ecosystem."""

import pytest

from metaxc.errors import ConfigError
from metaxc.irene import Irene, IreneConfig


def test_options_are_fields_of_the_configuration():
    irene = Irene(neighbours=5, exposure=0.5, encoder="static", adapter={"epochs": 3})
    assert irene.config == IreneConfig(neighbours=5, exposure=0.5, encoder="static", adapter={"epochs": 3})
    assert irene.encoder is None
    assert Irene().config == IreneConfig()


def test_options_change_a_given_configuration_and_nested_settings_are_merged():
    config = IreneConfig(neighbours=3, adapter={"epochs": 3, "batch": 64})
    changed = Irene(config, adapter={"epochs": 9}).config
    assert (changed.neighbours, changed.adapter.epochs, changed.adapter.batch) == (3, 9, 64)
    assert config.adapter.epochs == 3
    paper = Irene.paper(seed=4).config
    assert (paper.seed, paper.generator) == (4, "post_norm")


@pytest.mark.parametrize(
    ("options", "given", "meant"),
    [
        ({"neighbors": 5}, "neighbors", "neighbours"),
        ({"exposures": 5}, "exposures", "exposure"),
        ({"adapter": {"epoch": 5}}, "adapter.epoch", "adapter.epochs"),
        ({"epochs": 5}, "epochs", "adapter.epochs"),
    ],
)
def test_an_unknown_name_is_an_error_with_a_suggestion(options, given, meant):
    with pytest.raises(ConfigError, match="Unknown option") as error:
        Irene(**options)
    assert error.value.got == given
    assert error.value.fix == f"did you mean {meant}?"


def test_a_wrong_value_names_its_option():
    with pytest.raises(ConfigError, match="Invalid value for neighbours") as error:
        Irene(neighbours=0)
    assert "greater than or equal to 1" in str(error.value)
    with pytest.raises(ConfigError, match="Invalid value for encoder"):
        Irene(encoder="adopted")


def test_the_representation_has_only_what_was_changed():
    assert repr(Irene()) == "Irene()"
    assert repr(Irene(neighbours=5, encoder="static")) == "Irene(encoder='static', neighbours=5)"
