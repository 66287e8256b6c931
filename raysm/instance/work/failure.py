"""Describe why a workload failed; pickle the user's function, its value and its exception.

They are unpickled here, too.
"""

import io
import pickle
import re
import signal
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

import cloudpickle

from raysm.core.protocol.modules import shared
from raysm.core.protocol.names import LABEL_HOST, LABEL_RANK
from raysm.core.protocol.parcels import Pickled
from raysm.core.protocol.result import FRAME, Failure, without_frames
from raysm.errors import (
    BlockFailed,
    InstanceLost,
    InvalidConfig,
    InvalidPayload,
    InvalidRequest,
    MetricDiverged,
    TrialFailed,
    WorkerFailed,
)
from raysm.instance.exit_status import OWN_CODE

TERMINATED = 128 + signal.SIGTERM
COLORS = re.compile(r"\x1b\[[0-9;]*m")

ORIGINAL = "Original exception:\n"
ORIGINAL_DETAILS = "Original exception details:\n"
"""Ray puts the traceback of an exception that cannot be pickled, or unpickled here, after one of
these marks."""

OWN_FRAME = re.compile(rf'  File "[^"]*{OWN_CODE}')
TASK_ADDRESS = re.compile(r"ray::.*\(pid=\d+, ip=([^,)]+)")
"""What Ray writes before the traceback of a task; the task that raised comes last."""
ACTOR = re.compile(r", actor_id=.*\)$", re.MULTILINE)

HINTS = {
    "When connecting to an existing cluster, ": (
        "the script runs on the job's cluster, whose instances have their own resources: "
        "leave out these arguments of ray.init, or run it with --ray-init (ray_init=True), "
        "which does so"
    ),
    "Maybe you called ray.init twice by accident?": (
        "raysm has joined the cluster before: leave out ray.init()"
    ),
}
"""Remedies by the start of a message of Ray's that a program which was written for one machine
meets here."""

UNKNOWN_END = (
    "ended without an exit code: most likely memory was short; "
    "else it crashed, was killed, or left by os._exit"
)

INTERNAL = re.compile(
    r"raysm/(instance/work/driver\.py$|core/protocol/script_main\.py$"
    r"|features/\w+/runner\.py$|features/session/cluster/)"
)


def failure_of(error: BaseException) -> Failure | None:
    """Return why a workload ended; None if it succeeded."""
    user_frames = error.__traceback__
    while user_frames is not None and INTERNAL.search(
        Path(user_frames.tb_frame.f_code.co_filename).as_posix()
    ):
        user_frames = user_frames.tb_next
    match error:
        case SystemExit():
            return _failure_of_exit(error, user_frames)
        # No line of code is to blame, so no traceback helps.
        case InvalidRequest() | InvalidConfig() | InstanceLost() | MetricDiverged():
            return Failure(
                error_type=_name_of(error), message=str(error), exit_code=error.exit_status
            )
        case WorkerFailed():
            where = f"rank {error.rank} on {error.host}: {error.error_type}"
            return Failure(
                error_type=where,
                message=error.text,
                remote_traceback=error.remote_traceback,
                exit_code=error.exit_code,
            )
        case BlockFailed():
            # The frames of the head are left out, because it only waited for the block.
            return Failure(
                error_type=_name_of(error),
                message=error.summary,
                remote_traceback=error.remote_traceback,
            )
        case TrialFailed():
            return Failure(
                error_type=_name_of(error),
                message=str(error),
                remote_traceback=error.remote_traceback,
            )
    lines = COLORS.sub("", "".join(traceback.format_exception(type(error), error, user_frames)))
    code = 130 if isinstance(error, KeyboardInterrupt) else 1
    # The text of Ray's wrapper is the task's whole traceback; the message is only what the user's
    # code raised there.
    first = cause_in_task(error)
    kind = _name_of(first)
    message = str(first)
    if is_only_described(error):
        kind, message = _described_by_ray(kind, message)
    if kind == "ray.exceptions.WorkerCrashedError":
        message = _end_of_worker() or message
    elif host := _host_of_task(lines):
        message = f"{message} (on {host})"
    for start, hint in HINTS.items():
        if message.startswith(start):
            message = f"{message.rstrip('.')}; {hint}"
    return Failure(error_type=kind, message=message, remote_traceback=lines, exit_code=code)


def _failure_of_exit(error: SystemExit, user_frames: TracebackType | None) -> Failure | None:
    if error.code is None or error.code == 0:
        return None
    last = traceback.extract_tb(user_frames)[-1:]
    is_rays = (
        bool(last)
        and last[0].name == "sigterm_handler"
        and last[0].filename.endswith("ray/_private/worker.py")
    )
    # Ray answers SIGTERM by an exit.
    if error.code == TERMINATED or is_rays:
        return Failure(
            error_type="SIGTERM", message="the workload was asked to end", exit_code=TERMINATED
        )
    code = error.code if isinstance(error.code, int) else 1
    where = f", raised at {Path(last[0].filename).name}:{last[0].lineno}" if last else ""
    if last and Path(last[0].filename).name == "argparse.py":
        # ArgumentParser.exit writes this message to stderr: "train.py: error: argument --lr: …".
        *_, (frame, _) = traceback.walk_tb(user_frames)
        where = f", {(frame.f_locals.get('message') or '').strip()}".rstrip(", ")
    if not last and (notes := getattr(error, "__notes__", ())):
        return Failure(error_type=notes[0], message="", exit_code=code)
    # An exit status has eight bits, and 256 would look like success.
    return Failure(
        error_type="SystemExit", message=f"{error.code}{where}", exit_code=code & 0xFF or 1
    )


def _name_of(error: BaseException) -> str:
    kind = type(error)
    is_known = kind.__module__ in ("builtins", "__main__", "raysm.errors")
    return kind.__name__ if is_known else f"{kind.__module__}.{kind.__name__}"


def _host_of_task(text: str) -> str:
    """Return the instance on which a task raised.

    Return "" for the head, and where several instances share an address.
    """
    addresses = TASK_ADDRESS.findall(text)
    # The module exists if a task ran; only there, since ray.nodes() would start Ray.
    if not addresses or not (ray := sys.modules.get("ray")) or not ray.is_initialized():
        return ""
    try:
        nodes = ray.nodes()
    except Exception:  # the cluster is ending, and the failure itself matters more
        return ""
    there = [node["Labels"] for node in nodes if node["NodeManagerAddress"] == addresses[-1]]
    return (
        str(there[0].get(LABEL_HOST, ""))
        if len(there) == 1 and there[0].get(LABEL_RANK, "0") != "0"
        else ""
    )


def _end_of_worker() -> str:
    """Return how the last process that Ray lost has ended, and on which instance.

    Return "" if Ray does not tell.
    """
    try:
        import ray
        from ray._private.state import state
        from ray.core.generated.common_pb2 import WorkerExitType
        from ray.core.generated.gcs_pb2 import WorkerTableData

        workers = map(
            WorkerTableData.FromString, state._connect_and_get_accessor().get_worker_table()
        )
        lost = [
            each
            for each in workers
            if not each.is_alive and each.exit_type == WorkerExitType.SYSTEM_ERROR
        ]
        last = max(lost, key=lambda worker: worker.end_time_ms)
        labels = {node["NodeID"]: node["Labels"] for node in ray.nodes()}[
            last.worker_address.node_id.hex()
        ]
    except Exception:  # its interfaces are private, and the cluster may be ending
        return ""
    code = re.search(r"exit code (\d+)", last.exit_detail)
    how = f"ended with exit code {code[1]}" if code else UNKNOWN_END
    return f"the process of a task on {labels[LABEL_HOST]} {how}"


DETAIL = "Worker exit detail:"
ADVICE = "Some common causes"
"""Ray's message about an actor says between these words how its process ended."""
UNEXPLAINED = ("connection error code 2", "The worker died unexpectedly")
"""Ray's words where it does not know how a process ended."""


def how_process_ended(error: Exception) -> str:
    """Return how the process of a task or an actor ended, from Ray's error.

    An example is ``ended without an exit code: …``.
    """
    # Ray's message about an actor has the reason near its end, after a long description of the
    # actor.
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()] or [
        type(error).__name__
    ]
    reason = next((line for line in lines if DETAIL in line), lines[0])
    reason = reason.rpartition(DETAIL)[2].partition(ADVICE)[0].strip()
    return UNKNOWN_END if any(words in reason for words in UNEXPLAINED) else f"died: {reason}"


def cause_in_task(error: BaseException) -> BaseException:
    is_of_task = _name_of(error).startswith("ray.exceptions.RayTaskError")
    cause = getattr(error, "cause", None) if is_of_task else None
    return cause if isinstance(cause, BaseException) else error


def is_only_described(error: BaseException) -> bool:
    return _name_of(cause_in_task(error)) in (
        "ray.exceptions.UnserializableException",
        "ray.exceptions.RayError",
    )


def task_traceback(error: BaseException) -> str:
    """Return the traceback of a task's exception.

    raysm's own frames and Ray's remarks on pickling are left out.
    """
    text = COLORS.sub("", str(error))
    return _without_internal_frames((text.partition(ORIGINAL)[2] or text).strip())


def _without_internal_frames(text: str) -> str:
    """Drop raysm's frames, and what is left of Ray's, unless there are no other frames."""
    lines = without_frames(ACTOR.sub(")", text), OWN_FRAME).splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith(FRAME)), 0)
    # Ray drops its own first frame, but leaves the underline below it.
    return "\n".join(
        [*(line for line in lines[:first] if not line.startswith("    ")), *lines[first:]]
    )


def _described_by_ray(kind: str, message: str) -> tuple[str, str]:
    for mark in (ORIGINAL, ORIGINAL_DETAILS):
        lines = COLORS.sub("", message.partition(mark)[2]).strip().splitlines()
        if lines:
            # The exception follows the last frame, whose lines are indented.
            start = max(
                (number + 1 for number, line in enumerate(lines) if line.startswith("  ")),
                default=0,
            )
            name, _, text = "\n".join(lines[start:] or lines[-1:]).partition(": ")
            return name, text
    return kind, message


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, item: Any) -> Any:
        reduction = super().reducer_override(item)
        return shared(item, reduction) if isinstance(item, type) else reduction


def _pickled(value: object) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def pickled_value(value: object, name: str, into: Pickled | None = None) -> bytes:
    """Pickle the value of the function ``name``, ``into`` a file if given; else return bytes."""
    try:
        if into is None:
            return _pickled(value)
        _Pickler(into, protocol=5, buffer_callback=into.take_buffer).dump(value)
        return b""
    except Exception as error:  # pickling runs the value's own code, which may raise anything
        raise InvalidRequest(
            f"the value of {name}, a {type(value).__name__}, cannot be pickled: "
            f"{error}; return data, or write files"
        ) from error


def pickled_exception(error: BaseException) -> bytes | None:
    """Return the exception pickled, without Ray's wrapper; None if it does not survive pickling."""
    try:
        content = _pickled(cause_in_task(error))
        # Unpickle it too: an exception whose ``__init__`` takes other arguments than its ``args``
        # fails only then.
        pickle.loads(content)
    except Exception:  # pickling runs the exception's own code
        return None
    return bytes(content)


def unpickled(pickled: Path, name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    try:
        function, args, kwargs = pickle.loads(pickled.read_bytes())
    except ModuleNotFoundError as error:
        raise InvalidPayload(
            f"the function {name} needs the module {error.name!r}, which this image lacks: "
            "add it to the requirements, or define the function where it is submitted"
        ) from error
    except Exception as error:  # unpickling runs the arguments' own code
        raise InvalidPayload(
            f"the function {name} cannot be unpickled: {type(error).__name__}: {error}"
        ) from error
    return function, args, kwargs
