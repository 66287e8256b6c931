"""Programs whose clock of the day a test sets, an hour ahead or back: by a library that stands before libc's."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["ShiftedClock", "why_not"]

SOURCE = Path(__file__).with_suffix(".c")


def why_not():
    """Return why no clock can be shifted here, or None if it can."""
    if not sys.platform.startswith("linux"):
        return "a library before libc takes Linux"
    return None if shutil.which("cc") else "no C compiler: install gcc"


class ShiftedClock:
    """The clock of programs that are started with ``variables``."""

    def __init__(self, folder):
        self._ahead = folder / "an-hour-ahead"
        library = folder / "shifted_clock.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True, timeout=120)
        self.variables = {**os.environ, "LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(self._ahead)}

    def put_ahead(self):
        self._ahead.touch()

    def put_back(self):
        self._ahead.unlink()
