"""What every engine looks like to the step around it."""

import inspect

import pytest

from raysm.workloads.training.engines.full_model import Engine, FullModel
from raysm.workloads.training.engines.pipeline import Pipeline


@pytest.mark.parametrize("engine", [FullModel, Pipeline])
@pytest.mark.parametrize("method", ["forward_backward", "measure"])
def test_every_mode_takes_what_the_step_gives(engine, method):
    wanted = inspect.signature(getattr(Engine, method))
    assert inspect.signature(getattr(engine, method)).parameters.keys() == wanted.parameters.keys()
