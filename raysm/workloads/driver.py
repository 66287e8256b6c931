"""``python -m raysm.workloads.driver``: runs the request's workload on the head, inside the formed cluster.

The bootstrap starts it as a child process, with ``RAY_ADDRESS`` and the token's file in its environment. What flows out
is the result under the model folder, or a ``Failure`` in the failure record, and an exit code.
"""

import contextlib
import shutil
import sys
import traceback
from pathlib import Path
from types import TracebackType

from raysm.bootstrap import environment
from raysm.bootstrap.environment import Environment
from raysm.contract import payload
from raysm.contract.payload import Payload
from raysm.contract.result import EXCEPTION, FAILURE, Failure
from raysm.contract.store import put
from raysm.errors import InvalidConfig, InvalidRequest, MissingDependency
from raysm.request.job import MATRIX, JobRequest
from raysm.request.workload import PickledFunction, Script, Similarity
from raysm.workloads.script import run_script
from raysm.workloads.termination import leave_on_sigterm

__all__ = ["failure_of", "main"]

INTERNAL = ("raysm/workloads/driver.py", "raysm/workloads/script.py", "raysm/workloads/function.py")


def main() -> int:
    """Run the workload; return the exit code: 0, that of a SystemExit, 2 for what was asked for, else 1."""
    found: Environment | None = None
    packed: Payload | None = None
    try:
        found = environment.read()
        packed = payload.load(found.payload)
        _run(packed, found)
    except BaseException as error:
        failure = failure_of(error)
        if failure is None:
            return 0
        print(failure.remote_traceback or f"{failure.error_type}: {failure.message}", file=sys.stderr)  # noqa: T201
        if found is not None:
            is_function = packed is not None and isinstance(packed.request.workload, PickledFunction)
            _keep(failure, error if is_function else None, found)
        return failure.exit_code
    return 0


def _run(packed: Payload, found: Environment) -> None:
    workload = packed.request.workload
    if isinstance(workload, Script):
        run_script(packed.source / workload.script, workload.args)
    elif isinstance(workload, PickledFunction):
        try:
            from raysm.workloads.function import run_function
        except ImportError as error:
            raise MissingDependency(
                f"the image lacks {error.name or error}, which a function needs; add it to the requirements"
            ) from error
        run_function(packed.function, workload.name, found.paths.model)
    else:
        _run_similarity(workload, packed.request, found)


def _keep(failure: Failure, raised: BaseException | None, found: Environment) -> None:
    """Write the failure for the bootstrap, and whole, with the exception that a function raised, among the outputs."""
    # On a full disk, for one, stderr has told it already, and the exit code must still be returned.
    if found.failure_record is not None:
        with contextlib.suppress(OSError):
            failure.write(found.failure_record)
    with contextlib.suppress(OSError, ImportError):
        failure.write(found.paths.output_data / FAILURE)
        if raised is not None:
            from raysm.workloads.function import pickled_exception

            content = pickled_exception(raised.with_traceback(None))
            if content is not None:
                put(found.paths.output_data / EXCEPTION, content)


def failure_of(error: BaseException) -> Failure | None:
    """Return why a workload ended, without raysm's own frames in the traceback; None for an exit that is none."""
    own = _user_frames(error.__traceback__)
    if isinstance(error, SystemExit):
        if error.code is None or error.code == 0:
            return None
        code = error.code if isinstance(error.code, int) else 1
        last = traceback.extract_tb(own)[-1:] if own else []
        where = f", raised at {Path(last[0].filename).name}:{last[0].lineno}" if last else ""
        text = f"{error.code}{where}"
        return Failure(error_type="SystemExit", message=text, exit_code=code & 0xFF or 1)
    kind = type(error)
    name = (
        kind.__name__
        if kind.__module__ in ("builtins", "__main__", "raysm.errors")
        else (f"{kind.__module__}.{kind.__name__}")
    )
    if isinstance(error, (InvalidRequest, InvalidConfig)):
        return Failure(error_type=name, message=str(error), exit_code=2)
    lines = "".join(traceback.format_exception(kind, error, own))
    code = 130 if isinstance(error, KeyboardInterrupt) else 1
    return Failure(error_type=name, message=str(error), remote_traceback=lines, exit_code=code)


def _user_frames(frames: TracebackType | None) -> TracebackType | None:
    """Drop the frames above the user's own: those of this module and of ``run_script``."""
    while frames is not None and Path(frames.tb_frame.f_code.co_filename).as_posix().endswith(INTERNAL):
        frames = frames.tb_next
    return frames


def _run_similarity(workload: Similarity, request: JobRequest, found: Environment) -> None:
    try:
        import ray

        from raysm.workloads.announce import announce
        from raysm.workloads.similarity.context import Source
        from raysm.workloads.similarity.run import Folders, run
    except ImportError as error:
        raise MissingDependency(
            f"the image lacks {error.name or error}, which the similarity needs; add raysm's extra: "
            "pip install 'raysm[local]'"
        ) from error
    distribution = request.inputs[MATRIX].distribution
    if distribution != "FullyReplicated" and len(found.hosts) > 1:
        raise InvalidRequest(
            f"the channel {MATRIX!r} is {distribution}: every instance needs the whole matrix; make it FullyReplicated"
        )
    # Without checkpoints, finished blocks need not outlive this process; beside the result, a rename is enough.
    kept = found.paths.checkpoints / "raysm" / "similarity" if found.has_checkpoints else found.paths.model / ".raysm"

    def clean() -> None:
        if not found.has_checkpoints:
            shutil.rmtree(kept, ignore_errors=True)

    # What is finished is on disk already, so SIGTERM may end the work anywhere.
    leave_on_sigterm(clean)
    # RAY_ADDRESS names the cluster, and RAY_AUTH_TOKEN_PATH the token: "auto" takes no other one.
    ray.init(address="auto", log_to_driver=False, configure_logging=False)
    leave_on_sigterm(clean)
    try:
        run(
            workload,
            job=request.name,
            source=Source(channel=MATRIX, id_column=workload.id_column),
            folders=Folders(result=found.paths.model, records=kept),
            announce=announce,
        )
    finally:
        ray.shutdown()
        clean()


if __name__ == "__main__":
    sys.exit(main())
