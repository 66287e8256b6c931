"""What every engine looks like to the step around it."""

import inspect

import pytest

from raysm.workloads.training.engines.full_model import FullModel
from raysm.workloads.training.engines.pipeline import Pipeline
from raysm.workloads.training.engines.protocol import Engine


@pytest.mark.parametrize("engine", [FullModel, Pipeline])
def test_every_mode_takes_what_the_step_gives(engine):
    wanted = inspect.signature(Engine.forward_backward)
    assert inspect.signature(engine.forward_backward).parameters.keys() == wanted.parameters.keys()
