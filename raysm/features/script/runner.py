"""Run a script or a pickled function in the driver."""

import atexit
import functools
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from raysm.core.protocol.payload import SOURCE
from raysm.core.protocol.script_main import run_script
from raysm.core.protocol.seal import DIGESTS
from raysm.core.protocol.source import interpreter
from raysm.core.protocol.store import files_below, read_json, sha256_of
from raysm.errors import InvalidRequest
from raysm.features.script.request import PickledFunction, Script
from raysm.instance.exit_status import exit_by_signal
from raysm.instance.log import remark
from raysm.instance.work.failure import failure_of, pickled_value, unpickled
from raysm.instance.work.folders import fill_folders, keep_new_files, make_state_folder
from raysm.instance.work.forks import ending_forks
from raysm.instance.work.program import command_line
from raysm.instance.work.runner import Runner, naming_what_is_missing


class ScriptRunner(Runner[Script]):
    def run(self, address: str) -> None:
        begun_s = time.monotonic()
        owner = os.getpid()
        keeps_files = not (self.workload.in_state or self.workload.drop_files)
        sent = self._digest_source() if keeps_files else {}

        def describe() -> None:
            # A process that the script has forked ends with the exit handlers of this one.
            if os.getpid() != owner:
                return
            try:
                if keeps_files:
                    model = self.environment.paths.model
                    keep_new_files(self.payload.source, sent, model, remark)
                self.describe_result({"script": time.monotonic() - begun_s})
            except OSError as error:
                text = f"what the script left is not complete, or has no manifest: {error}"
                print(text, file=sys.stderr)  # noqa: T201

        # The first that is registered is called last: threads and exit handlers of the script may
        # write until then.
        atexit.register(describe)
        if self.workload.ray_init:
            with naming_what_is_missing(self.workload):
                import ray  # noqa: F401
            join(address)
        if self.workload.in_state:
            os.chdir(make_state_folder(self.environment, self.payload.source, remark))
        args = fill_folders(self.request.script_args, self.environment)
        program = self.workload.script
        source = self.payload.source
        try:
            if self.workload.command:
                words = command_line(program, args, source=source, is_command=True)
                run_command(words, Path(program).name, args)
            elif interpreter(source / program):
                run_command(
                    command_line(program, args, source=source, is_command=False), program, args
                )
            else:
                run_script(str(source / program), args)
        except BaseException as error:
            # ``SystemExit(0)`` is a good end; the files of a failure are no result, and get no
            # manifest.
            if failure_of(error) is not None:
                atexit.unregister(describe)
            raise

    def _digest_source(self) -> dict[str, str]:
        folder = self.payload.source
        if not folder.is_symlink():
            digests = read_json(self.payload.folder / DIGESTS)
            return {name.removeprefix(f"{SOURCE}/"): digest for name, digest in digests.items()}
        # The source of a job of the SageMaker SDK is in a channel of its own, without digests.
        return {
            path.relative_to(folder).as_posix(): sha256_of(path) for path in files_below(folder)
        }


def run_command(words: Sequence[str], name: str, args: Sequence[str]) -> None:
    """Run a program that is not Python, and raise SystemExit if it fails."""
    # A stop signals the program too, and the driver waits until it has saved its work.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        status = subprocess.run(words).returncode
    except OSError as error:
        raise InvalidRequest(
            f"the command {words[0]!r} cannot be started in the instance: {error.strerror}"
        ) from error
    if status:
        ended = SystemExit(status if status > 0 else 128 - status)
        ended.add_note(f"exit code {ended.code} of {shlex.join([name, *args])}")
        raise ended


class FunctionRunner(Runner[PickledFunction]):
    def run(self, address: str) -> None:
        self.keep_value(run_function(self.payload.function, self.workload.name))


def run_function(pickled: Path, name: str) -> bytes:
    """Call a pickled function in the cluster; return its value, pickled."""
    import ray

    function, args, kwargs = unpickled(pickled, name)
    # RAY_ADDRESS names the cluster, and RAY_AUTH_TOKEN_PATH the token: "auto" takes no other one.
    ray.init(address="auto")
    # Once only, and after Ray has put its own handler in place: the function may save its work in a
    # ``finally``.
    signal.signal(signal.SIGTERM, exit_by_signal)
    # While Ray lives: only then can references to the cluster be pickled, and is known how the
    # process of a task ended.
    content = pickled_value(_value(function, args, kwargs), name)
    ray.shutdown()
    return content


def _value(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        with ending_forks():
            return function(*args, **kwargs)
    except SystemExit as error:
        # As in a session: many main() functions end with sys.exit(0), and the job is Completed.
        if failure_of(error) is not None:
            raise
        return None


OF_A_NEW_CLUSTER = (
    *("num_cpus", "num_gpus", "resources", "labels", "object_store_memory", "local_mode"),
    *("_system_config", "_enable_object_reconstruction", "_node_name"),
)
"""Arguments of ``ray.init`` that describe a cluster to start; Ray refuses them on an existing
one."""
WITHOUT_EFFECT = {"ignore_reinit_error", "include_dashboard", "dashboard_host", "dashboard_port"}
"""Arguments that change nothing for a process that has joined."""


def join(address: str) -> None:
    """Join the cluster at ``address``; later calls of ``ray.init`` join the same one again.

    A call with other options, such as ``runtime_env`` or ``namespace``, joins anew with these.
    """
    import ray

    init = ray.init
    context = init(address=address)

    @functools.wraps(init)
    def init_again(*args: Any, **options: Any) -> Any:
        nonlocal context
        asked_address = args[0] if args else options.pop("address", None)
        left_out = {
            name: value
            for name, value in options.items()
            if name in OF_A_NEW_CLUSTER and value is not None and value is not False
        }
        if asked_address not in (None, "auto", address):
            left_out["address"] = asked_address
        if left_out:
            named = ", ".join(f"{name}={value!r}" for name, value in left_out.items())
            remark(
                f"ray.init joins the job's cluster, which has its own resources: {named} is left "
                "out"
            )
        options = {name: value for name, value in options.items() if name not in OF_A_NEW_CLUSTER}
        if ray.is_initialized() and options.keys() <= WITHOUT_EFFECT:
            return context
        ray.shutdown()
        context = init(address=address, **options)
        return context

    ray.init = init_again
