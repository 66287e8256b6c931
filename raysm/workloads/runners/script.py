"""Runs the user's script as ``__main__`` of the driver, as ``python script.py`` would."""

import atexit
import os
import sys
import time

from raysm.bootstrap.log import remark
from raysm.request.programs import Script
from raysm.workloads.failure import failure_of
from raysm.workloads.runner import Runner, naming_what_is_missing
from raysm.workloads.script_main import run_script
from raysm.workloads.state_folder import fill_folders, make_state_folder

__all__ = ["ScriptRunner"]


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
        args = fill_folders(self.request.script_args, self.environment)
        try:
            run_script(str(self.payload.source / self.workload.script), args)
        except BaseException as error:
            # ``SystemExit(0)`` is an end like any other; what a failure left is no result, and gets no manifest.
            if failure_of(error) is not None:
                atexit.unregister(describe)
            raise
