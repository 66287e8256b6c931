"""Run the request's workload on the head, inside the formed cluster.

The command is ``python -m raysm.instance.work.driver``.

The bootstrap starts it, with ``RAY_ADDRESS`` and the token's file in its environment. The runner
leaves the result in the model folder; the driver leaves an exit code, and a ``Failure`` in the
failure record if the workload failed.
"""

import contextlib
import gc
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from raysm.core.protocol import payload as payloads
from raysm.core.protocol import stack_signal
from raysm.core.protocol.payload import Payload
from raysm.core.protocol.result import EXCEPTION, Failure
from raysm.core.protocol.script_main import leave_at_once_after_exit_handlers
from raysm.instance import environment as environments
from raysm.instance import ray_internals
from raysm.instance.children import WAIT
from raysm.instance.environment import Environment
from raysm.instance.exit_status import exception_beside
from raysm.instance.ray_imports import import_ray_lean
from raysm.instance.work.after_import import AfterImport
from raysm.instance.work.failure import failure_of, pickled_exception
from raysm.instance.work.preemption import drain_while_ray_train_runs
from raysm.instance.work.runner import keep_pickle, load_runner, note_beginning


def main(arguments: Sequence[str] = ()) -> int:
    """Run the workload; return the exit code.

    The exit code is 0, that of a SystemExit, 2 for an invalid request, else 1.

    A runner whose work is done may end the process itself. With ``--wait`` in ``arguments`` the
    cluster is not formed
    yet: the runner prepares, and then the driver reads the address as a line from stdin. If stdin
    ends instead, there will be no cluster, and the driver ends.
    """
    environment: Environment | None = None
    payload: Payload | None = None
    try:
        environment = environments.read()
        payload = payloads.load(environment.payload)
        import_ray_lean()
        logging.getLogger(ray_internals.LOGGER).setLevel(logging.WARNING)
        # Added only now: at Python's start a json.py of the user's would replace the standard
        # library's.
        sys.path.insert(0, str(payload.source))
        if storage := environments.train_storage():
            set_default_storage(storage)
        drain_while_ray_train_runs(payload.request.chosen_grace_s)
        # Collections during imports find nothing, and take 0.03 s.
        gc.disable()
        runner = load_runner(payload, environment)
        address = "auto"
        if WAIT in arguments:
            runner.prepare()
            address = sys.stdin.readline().strip()
            if not address:
                return 0
        gc.enable()
        if payload.request.hides_hyperparameters:
            print(  # noqa: T201
                "raysm: the hyperparameters are in SM_HPS and SM_HP_…, "
                "not in the script's arguments; --hyperparameters-as-args (in Python "
                "hyperparameters_as_args=True) passes them as --name value",
                flush=True,
            )
        note_beginning(environment)
        runner.run(address)
    except BaseException as error:
        failure = failure_of(error)
        return 0 if failure is None else _fail(failure, error, payload, environment)
    return 0


def _fail(
    failure: Failure, error: BaseException, payload: Payload | None, environment: Environment | None
) -> int:
    workload = None if payload is None else payload.request.workload
    # The process whose output is relayed has written its traceback to the log.
    is_logged = workload is not None and workload.relays_output
    text = failure.headline if is_logged else failure.remote_traceback or failure.headline
    print(text.rstrip("\n"), file=sys.stderr)  # noqa: T201
    if environment is not None and environment.failure_record is not None:
        travels = workload is not None and workload.returns_value
        _record(failure, error if travels else None, environment.failure_record)
    return failure.exit_code


def _record(failure: Failure, raised: BaseException | None, record: Path) -> None:
    # If the disk is full, stderr has the failure already, and the exit code must still be returned.
    with contextlib.suppress(OSError):
        if raised is not None:
            content = pickled_exception(raised.with_traceback(None))
            if content is not None:
                keep_pickle(exception_beside(record), content, EXCEPTION)
    with contextlib.suppress(OSError):
        failure.write(record)  # last, so that its reader finds the exception too


TRAIN_CONSTANTS = "ray.train.constants"
"""The module with Ray Train's default storage, for which Ray has no setting."""


def set_default_storage(uri: str) -> None:
    """Make ``uri`` the default ``storage_path`` of Ray Train and Ray Tune.

    Call it before they are imported.

    Ray's own default, ``~/ray_results``, is a folder of one instance. With several instances Ray
    Train refuses the first checkpoint: "Unable to set up cluster storage".
    """
    setting = {"DEFAULT_STORAGE_PATH": uri}
    sys.meta_path.insert(
        0, AfterImport(TRAIN_CONSTANTS, lambda module: vars(module).update(setting))
    )


if __name__ == "__main__":
    # First, because exit handlers are called in reverse order: those of Ray and of the user's code
    # run before this one.
    set_exit_status = leave_at_once_after_exit_handlers()
    stack_signal.register("driver")
    exit_status = main(sys.argv[1:])
    set_exit_status(exit_status)
    sys.exit(exit_status)
