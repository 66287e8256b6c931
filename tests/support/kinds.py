"""Kinds of workloads in modules of their own, as a user has them beside a notebook or a script."""

import contextlib
import importlib
import sys

KIND = """
from dataclasses import dataclass
from typing import ClassVar
from raysm.core.request import Workload
import wording

@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep(Workload):
    runner: ClassVar[str] = "sweep_runner:SweepRunner"
    label: ClassVar[str] = wording.LABEL
    trials: int = 1
"""

FILES = {
    "sweep.py": KIND,
    "sweep_runner.py": "import sweep_search\n",
    "sweep_search.py": "",
    "wording.py": "LABEL = 'the sweep'\n",
    "unrelated.py": "",
}


@contextlib.contextmanager
def imported_from(folder):
    """Write ``FILES`` into ``folder``; yield the class of the kind, imported from there, and forget it afterwards."""
    folder.mkdir(exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module("sweep").Sweep
    finally:
        sys.path.remove(str(folder))
        for name in {name.removesuffix(".py") for name in FILES} & (set(sys.modules) - before):
            del sys.modules[name]
