"""What is put into IPython's shell."""

import types

import pytest

import raysm
from raysm.views.magics.magics import load_ipython_extension, unload_ipython_extension

pytest.importorskip("IPython")


class Shell:
    """IPython's shell, as far as the extension has to know it."""

    def __init__(self):
        self.user_ns, self.execution_count = {}, 1
        self.input_transformers_cleanup = []
        self.Completer = types.SimpleNamespace(custom_matchers=[])
        self.magics_manager = types.SimpleNamespace(magics={"line": {}, "cell": {}})

    def register_magic_function(self, function, magic_kind, magic_name):
        assert magic_kind == "line_cell"
        for table in self.magics_manager.magics.values():
            table[magic_name] = function


def parts(shell):
    return [
        len(shell.input_transformers_cleanup),
        len(shell.Completer.custom_matchers),
        *(len(table) for table in shell.magics_manager.magics.values()),
    ]


def test_it_is_loaded_once_and_taken_out_whole():
    shell = Shell()
    load_ipython_extension(shell)
    load_ipython_extension(shell)
    assert parts(shell) == [1, 1, 1, 1]
    unload_ipython_extension(shell)
    unload_ipython_extension(shell)
    assert parts(shell) == [0, 0, 0, 0]


def test_ipython_finds_it_by_the_packages_name():
    assert raysm.load_ipython_extension is load_ipython_extension
    assert raysm.unload_ipython_extension is unload_ipython_extension


def test_a_cell_reaches_the_magics_of_its_shell():
    shell = Shell()
    load_ipython_extension(shell)
    with pytest.raises(pytest.importorskip("IPython.core.error").UsageError, match="no session is connected"):
        shell.magics_manager.magics["cell"]["raysm"]("", "1\n")
    unload_ipython_extension(shell)
