"""A user's script as ``__main__`` of this very process, as ``python script.py`` would run it.

What flows in is the payload's script, what flows out is whatever it leaves in the model folder, with a manifest.
"""

import atexit
import os
import sys
import time
import types
from collections.abc import Sequence
from pathlib import Path

from raysm.bootstrap.log import remark
from raysm.request.script import Script
from raysm.workloads.failure import failure_of
from raysm.workloads.runner import Runner, naming_what_is_missing
from raysm.workloads.state_folder import fill_folders, make_state_folder

__all__ = ["ScriptRunner", "run_script"]


class ScriptRunner(Runner[Script]):
    """Runs the script, which joins Ray itself, unless it wants to find itself joined."""

    def run(self, address: str) -> None:
        """Run it; whatever it raises passes through, ``SystemExit`` too."""
        begun_s = time.monotonic()

        def describe() -> None:
            try:
                self.describe_result({"script": time.monotonic() - begun_s})
            except OSError as error:
                print(f"what the script left has no manifest: {error}", file=sys.stderr)  # noqa: T201

        # The first that is registered is called last: threads and exit handlers of the script may write until then.
        atexit.register(describe)
        if self.workload.ray_init:
            with naming_what_is_missing(self.workload):
                import ray
            ray.init(address=address)
        if self.workload.in_state:
            os.chdir(make_state_folder(self.environment, self.payload.source, remark))
        args = fill_folders(self.workload.args, self.environment)
        try:
            run_script(self.payload.source / self.workload.script, args)
        except BaseException as error:
            # ``SystemExit(0)`` is an end like any other; what a failure left is no result, and gets no manifest.
            if failure_of(error) is not None:
                atexit.unregister(describe)
            raise


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
