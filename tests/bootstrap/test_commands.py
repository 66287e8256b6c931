"""What the bootstrap runs by default can be found by this Python."""

import importlib.util
import sys

import pytest

from raysm.bootstrap.children import Commands


@pytest.mark.parametrize("name", ["ray", "driver", "tracked_driver"])
def test_every_default_command_is_a_module_of_this_interpreter(name):
    python, *options, module = getattr(Commands(), name)
    assert (python, options) == (sys.executable, ["-P", "-m"])
    assert importlib.util.find_spec(module) is not None
