"""``%load_ext raysm``: the magics are put into IPython's shell, and taken out of it again."""

from typing import Any

from raysm.views.magics.magics import Magics
from raysm.views.magics.remote_mode import Completer

__all__ = ["load_ipython_extension", "unload_ipython_extension"]

MAGIC = "raysm"


class _Loaded:
    """What was put into one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        magics = Magics(shell)
        self._mode, self._completer = magics.mode, Completer(magics.mode, magics.session_of)
        self._matcher = self._completer.matcher()
        shell.register_magic_function(magics.raysm, magic_kind="line_cell", magic_name=MAGIC)
        shell.input_transformers_cleanup.append(self._mode)
        shell.Completer.custom_matchers.append(self._matcher)

    def remove(self) -> None:
        for table in self._shell.magics_manager.magics.values():
            table.pop(MAGIC, None)
        self._shell.input_transformers_cleanup.remove(self._mode)
        self._shell.Completer.custom_matchers.remove(self._matcher)
        self._completer.close()


_loaded: dict[int, _Loaded] = {}
"""By shell: a process may have several, one in another."""


def load_ipython_extension(shell: Any) -> None:
    """Put ``%raysm`` and ``%%raysm`` into a shell of IPython's; harmless when repeated."""
    if id(shell) not in _loaded:
        _loaded[id(shell)] = _Loaded(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take them out again; sessions go on."""
    loaded = _loaded.pop(id(shell), None)
    if loaded is not None:
        loaded.remove()
