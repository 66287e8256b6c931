"""``python -m raysm.workloads.driver``: runs the request's workload on the head, inside the formed cluster.

The bootstrap starts it as a child process, with ``RAY_ADDRESS`` and the token's file in its environment. What flows out
is the result under the model folder, or a ``Failure`` in the failure record, and an exit code.
"""

import atexit
import contextlib
import logging
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from raysm.bootstrap import environment
from raysm.bootstrap.environment import Environment
from raysm.bootstrap.failure_record import exception_beside
from raysm.bootstrap.programs import WAIT
from raysm.contract import payload
from raysm.contract.payload import Payload
from raysm.contract.result import Failure
from raysm.contract.store import put
from raysm.errors import InstanceLost, InvalidConfig, InvalidRequest, MissingDependency, WorkerFailed
from raysm.request.job import MATRIX, QUERIES, JobRequest
from raysm.request.training import TorchScript, TrainLoop
from raysm.request.workload import PickledFunction, Script, Similarity
from raysm.workloads.left_files import write_manifest
from raysm.workloads.script import run_script
from raysm.workloads.termination import leave, leave_on_sigterm

__all__ = ["failure_of", "main"]

TERMINATED = 128 + signal.SIGTERM
"""How who is ended by SIGTERM exits, and who has a handler that leaves in good order."""

COLORS = re.compile(r"\x1b\[[0-9;]*m")
"""That Ray writes into a task's traceback, whoever reads it."""

INTERNAL = ("raysm/workloads/driver.py", "raysm/workloads/script.py", "raysm/workloads/function.py")


def main(arguments: Sequence[str] = ()) -> int:
    """Run the workload; return the exit code: 0, that of a SystemExit, 2 for what was asked for, else 1.

    Where the workload is the similarity, and is done, the process ends here.

    Args:
        arguments: ``--wait``: the cluster is not formed yet. What the workload needs is made ready, and its address
            comes as a line on stdin; the end of stdin says that there will be no cluster.
    """
    found: Environment | None = None
    packed: Payload | None = None
    try:
        found = environment.read()
        packed = payload.load(found.payload)
        _hush_ray()
        address = "auto"
        if WAIT in arguments:
            _make_ready(packed.request)
            address = sys.stdin.readline().strip()
            if not address:
                return 0
        _run(packed, found, address)
    except BaseException as error:
        failure = failure_of(error)
        if failure is None:
            return 0
        # What a process of a torchrun script wrote, its traceback too, has come here already, line by line.
        is_told = packed is not None and isinstance(packed.request.workload, TorchScript)
        text = failure.headline if is_told else failure.remote_traceback or failure.headline
        print(text.rstrip("\n"), file=sys.stderr)  # noqa: T201
        if found is not None:
            is_function = packed is not None and isinstance(packed.request.workload, PickledFunction)
            _keep(failure, error if is_function else None, found.failure_record)
        return failure.exit_code
    return 0


def _hush_ray() -> None:
    """Leave to Ray its warnings and errors, not the three lines, colored, with which each ``ray.init`` greets."""
    logging.getLogger("ray._private.worker").setLevel(logging.WARNING)


def _run(packed: Payload, found: Environment, address: str) -> None:
    workload = packed.request.workload
    if isinstance(workload, Script):
        _run_script(workload, packed, found)
    elif isinstance(workload, PickledFunction):
        try:
            from raysm.workloads.function import run_function
        except ImportError as error:
            raise MissingDependency(
                f"the image lacks {error.name or error}, which a function needs; add it to the requirements"
            ) from error
        run_function(packed.function, workload.name, found.paths.model)
    elif isinstance(workload, (TorchScript, TrainLoop)):
        _run_training(workload, packed, found)
    else:
        _run_similarity(workload, packed.request, found, address)


def _run_script(workload: Script, packed: Payload, found: Environment) -> None:
    begun_s = time.monotonic()

    def say_what_is_left() -> None:
        try:
            phases_s = {"script": time.monotonic() - begun_s}
            hosts = tuple(host.name for host in found.hosts)
            write_manifest(packed.request, found.paths.model, instances=hosts, phases_s=phases_s)
        except OSError as error:
            print(f"what the script left has no manifest: {error}", file=sys.stderr)  # noqa: T201

    # The first that is registered is called last: threads and exit handlers of the script may write until then.
    atexit.register(say_what_is_left)
    try:
        run_script(packed.source / workload.script, workload.args)
    except BaseException as error:
        if failure_of(error) is not None:
            atexit.unregister(say_what_is_left)
        raise


def _keep(failure: Failure, raised: BaseException | None, record: Path | None) -> None:
    """Write the failure, and the exception that a function raised, for the bootstrap, which knows if they count."""
    if record is None:
        return
    # On a full disk, for one, stderr has told it already, and the exit code must still be returned.
    with contextlib.suppress(OSError, ImportError):
        if raised is not None:
            from raysm.workloads.function import pickled_exception

            content = pickled_exception(raised.with_traceback(None))
            if content is not None:
                put(exception_beside(record), content)
    with contextlib.suppress(OSError):
        failure.write(record)  # last: who finds it finds the exception too


def failure_of(error: BaseException) -> Failure | None:
    """Return why a workload ended, without raysm's own frames in the traceback; None for an exit that is none."""
    own = _user_frames(error.__traceback__)
    if isinstance(error, SystemExit):
        if error.code is None or error.code == 0:
            return None
        if error.code == TERMINATED or _is_rays_answer_to_sigterm(own):
            return Failure(error_type="SIGTERM", message="the driver was told to end", exit_code=TERMINATED)
        code = error.code if isinstance(error.code, int) else 1
        last = traceback.extract_tb(own)[-1:] if own else []
        where = f", raised at {Path(last[0].filename).name}:{last[0].lineno}" if last else ""
        text = f"{error.code}{where}"
        return Failure(error_type="SystemExit", message=text, exit_code=code & 0xFF or 1)
    name = _name_of(error)
    if isinstance(error, (InvalidRequest, InvalidConfig)):
        return Failure(error_type=name, message=str(error), exit_code=2)
    if isinstance(error, InstanceLost):  # no line of anybody's code is to blame
        return Failure(error_type=name, message=str(error))
    if isinstance(error, WorkerFailed):
        where = f"rank {error.rank} on {error.host}: {error.error_type}"
        return Failure(
            error_type=where, message=error.text, remote_traceback=error.remote_traceback, exit_code=error.exit_code
        )
    lines = COLORS.sub("", "".join(traceback.format_exception(type(error), error, own)))
    code = 130 if isinstance(error, KeyboardInterrupt) else 1
    # Ray's own text is the whole traceback of the task: the reason is what the user's code raised there.
    first = _cause_in_task(error)
    return Failure(error_type=_name_of(first), message=str(first), remote_traceback=lines, exit_code=code)


def _name_of(error: BaseException) -> str:
    kind = type(error)
    is_known = kind.__module__ in ("builtins", "__main__", "raysm.errors")
    return kind.__name__ if is_known else f"{kind.__module__}.{kind.__name__}"


def _cause_in_task(error: BaseException) -> BaseException:
    """Return what a task or actor raised, where ``error`` is how Ray hands it over; else ``error``."""
    is_of_task = _name_of(error).startswith("ray.exceptions.RayTaskError")
    cause = getattr(error, "cause", None) if is_of_task else None
    return cause if isinstance(cause, BaseException) else error


def _is_rays_answer_to_sigterm(frames: TracebackType | None) -> bool:
    """Whether an exit comes from the handler that ``ray.init`` installs, wherever user code was just then."""
    last = traceback.extract_tb(frames)[-1:]
    return bool(last) and last[0].name == "sigterm_handler" and last[0].filename.endswith("ray/_private/worker.py")


def _user_frames(frames: TracebackType | None) -> TracebackType | None:
    """Drop the frames above the user's own: those of this module and of ``run_script``."""
    while frames is not None and Path(frames.tb_frame.f_code.co_filename).as_posix().endswith(INTERNAL):
        frames = frames.tb_next
    return frames


def _run_training(workload: TorchScript | TrainLoop, packed: Payload, found: Environment) -> None:
    try:
        if isinstance(workload, TorchScript):
            from raysm.workloads.training.launch.torch_script import run_torch_script

            run_torch_script(workload, packed, found)
        else:
            from raysm.workloads.training.launch.data_parallel import run_data_parallel

            run_data_parallel(workload, packed, found)
    except ImportError as error:
        # Ray Train says by its own words, without a name, what it lacks.
        lacking = error.name or "what Ray Train needs (pandas, among others)"
        raise MissingDependency(
            f"{lacking} is not installed where the training runs; add raysm's extra: pip install 'raysm[train]'"
        ) from error


def _make_ready(request: JobRequest) -> None:
    """Import, compile and begin to digest what the similarity needs: it takes seconds, and none needs the cluster."""
    _import_similarity()
    from raysm.workloads.similarity.engines import compile_ahead
    from raysm.workloads.similarity.reading import digests
    from raysm.workloads.similarity.reading.source import Source

    for name in _whole(request):
        digests.begin(Source(channel=name).here().channel)
    compile_ahead()


def _whole(request: JobRequest) -> set[str]:
    """Return the channels that lie whole on every instance."""
    return {name for name, given in request.inputs.items() if given.distribution == "FullyReplicated"} & {
        MATRIX,
        QUERIES,
    }


def _import_similarity() -> None:
    try:
        import raysm.workloads.similarity.run  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            f"the image lacks {error.name or error}, which the similarity needs; add raysm's extra: "
            "pip install 'raysm[local]'"
        ) from error


def _run_similarity(workload: Similarity, request: JobRequest, found: Environment, address: str) -> None:
    _import_similarity()
    import ray

    from raysm.workloads.announce import announce
    from raysm.workloads.similarity.reading.source import Source
    from raysm.workloads.similarity.run import Folders, run

    spread = {name for name, given in request.inputs.items() if given.distribution != "FullyReplicated"}
    # One instance has all that there is.
    spread = spread if len(found.hosts) > 1 else set()
    kept = found.paths.records(lasting=found.has_checkpoints)

    def clean() -> None:
        if not found.has_checkpoints:
            shutil.rmtree(kept, ignore_errors=True)

    # What is finished is on disk already, so SIGTERM may end the work anywhere.
    leave_on_sigterm(clean)
    # RAY_ADDRESS names the cluster, and RAY_AUTH_TOKEN_PATH the token: "auto" takes no other one.
    ray.init(address=address, log_to_driver=False, configure_logging=False)
    leave_on_sigterm(clean)
    try:
        run(
            workload,
            job=request.name,
            source=Source(channel=MATRIX, id_column=workload.id_column, sharded=MATRIX in spread),
            folders=Folders(result=found.paths.model, records=kept),
            announce=announce,
            queries=Source(channel=QUERIES, id_column=workload.id_column, sharded=QUERIES in spread)
            if QUERIES in request.inputs
            else None,
        )
    except BaseException:
        ray.shutdown()
        raise
    finally:
        clean()
    leave()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
