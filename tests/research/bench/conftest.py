"""The context that the tests of the tables share."""

import pytest
import torch

from metaxc.irene import IreneConfig
from metaxc.research.bench import (
    Context,
)

CONFIG = IreneConfig(encoder="pretrained", folds=1)


@pytest.fixture(scope="session")
def context(world, tmp_path_factory):
    torch.set_num_threads(1)
    return Context(world.dataset, CONFIG, folder=tmp_path_factory.mktemp("work"), encoder=world.encoder)
