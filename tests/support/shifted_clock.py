"""Programs whose clock of the day a test sets, ahead or back: by a library that stands before libc's."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


def why_not():
    """Return why no clock can be shifted here, or None if it can."""
    if not sys.platform.startswith("linux"):
        return "a library before libc takes Linux"
    return None if shutil.which("cc") else "no C compiler: install gcc"


class ShiftedClock:
    """The clock of programs that are started with ``variables``."""

    def __init__(self, folder):
        self._shift = folder / "clock-shift"
        library = folder / "shifted_clock.so"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"],
            check=True,
            timeout=120,
        )
        self.variables = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "SHIFTED_CLOCK": str(self._shift),
        }

    def jump(self, seconds):
        """Set the clock so many seconds ahead of this machine's; negative ones set it back."""
        # Whole or not at all: the programs read it at every look at the clock.
        beside = self._shift.with_suffix(".new")
        beside.write_text(str(seconds))
        beside.replace(self._shift)
