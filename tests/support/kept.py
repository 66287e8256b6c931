"""A keeper's program driven by its lines of JSON, as its parent drives it."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

WAIT_S = 300.0


class Kept:
    """A running keeper: what it keeps writes to ``log`` in its folder."""

    def __init__(self, program, folder: Path):
        reader, writer = os.pipe()
        self.folder = folder
        with (folder / "log").open("wb") as log:
            command = [sys.executable, "-I", "-S", program.__file__, str(writer)]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, pass_fds=[writer])
        os.close(writer)
        self.reports = os.fdopen(reader)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.reports.readline())

    def log(self):
        return (self.folder / "log").read_text()

    def close(self):
        """Hang up, as a parent does that is gone, and wait until all is gone that it kept."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait(WAIT_S)
        self.reports.close()
