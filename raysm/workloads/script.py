"""A user's script as ``__main__`` of this very process, as ``python script.py`` would run it."""

import sys
import types
from collections.abc import Sequence
from pathlib import Path

__all__ = ["run_script"]


def run_script(script: Path, args: Sequence[str]) -> None:
    """Run ``script``; it sees ``sys.argv``, ``sys.path[0]`` and ``__main__`` as if Python had been started with it.

    Unlike ``runpy.run_path`` the module stays: threads and exit handlers that outlive the last line find their globals.
    Whatever the script raises passes through, ``SystemExit`` too.
    """
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.argv[:] = [str(script), *args]
    sys.path[0:1] = [str(script.parent)]
    code = compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
    exec(code, main.__dict__)
