"""The exit code of an instance, and the text that SageMaker keeps as FailureReason."""

import contextlib
import os
import re
import signal
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from raysm.core.protocol.result import EXCEPTION, MAX_REASON, Failure
from raysm.core.protocol.store import put
from raysm.errors import InstanceLost, InvalidConfig, InvalidRequest, RayFailed, RaysmError
from raysm.instance.environment import base_paths
from raysm.instance.log import remark

MAX_CHARACTER_BYTES = 4
"""Of UTF-8."""

STOPPED = 128 + signal.SIGTERM
RAY_CHECK = re.compile(r"^\[[^\]\n]* C \d+ \d+\] (.+)$", re.MULTILINE)
"""The line of a failed check (RAY_CHECK) in Ray's log; stack frames follow it."""

FATAL = re.compile(
    r"^(Fatal Python error: .+\n)(?:.*\n)*?(?:Current thread 0x|Stack )"
    r".*\(most recent call first\):\n((?:  .+\n)*)",
    re.MULTILINE,
)
"""What Python's faulthandler writes at a signal such as SIGSEGV; the frames are those of the thread
that got it."""
OWN_CODE = r"/raysm/(?:instance/|core/protocol/|features/\w+/(?:cluster/|runner\.py))"
"""The part of a path by which a traceback shows raysm's code that runs in a job."""
OWN_FRAME = re.compile(rf'  File "(?:[^"]*{OWN_CODE}[^"]*|<frozen runpy>)", line .*\n')


@dataclass(frozen=True, slots=True)
class ExitStatus:
    exit_code: int
    reason: str | None = None
    """At most MAX_REASON characters, the exception first; None if nothing failed."""
    stopped: bool = False

    @property
    def headline(self) -> str:
        return (self.reason or "").split("\n")[0]

    def led_by_file(self, path: Path) -> "ExitStatus":
        """Return the status of a failure, beginning with the text in the failure file.

        The user's code wrote that text.
        """
        # A pipe would wait for who writes.
        if not self.reason or not path.is_file():
            return self
        try:
            with path.open("rb") as file:
                text = file.read(MAX_REASON * MAX_CHARACTER_BYTES).decode(errors="replace").strip()
        except OSError:
            return self
        # The cause may take half of the room, and more if the user's text leaves it.
        room = MAX_REASON - min(len(self.reason), MAX_REASON // 2) - 1
        if len(text) > room:
            text = f"{text[: room - 1]}…"
        reason = f"{text}\n{self.reason}"[:MAX_REASON] if text else self.reason
        return replace(self, reason=reason)

    def write(self, path: Path) -> None:
        """Write the reason, if there is one, into the failure file.

        On a full disk this works only if room was reserved for it.
        """
        with contextlib.suppress(OSError):
            _reserve(path).unlink()
        if self.reason:
            # The text may contain lone surrogates, from a file name that is not UTF-8.
            text = self.reason.encode(errors="backslashreplace").decode()[:MAX_REASON]
            with contextlib.suppress(OSError):
                put(path, text)


RESERVE_BYTES = 64 << 10


def reserve_room(failure: Path) -> None:
    """Keep some room on the failure file's disk, for the reason of a job that has filled it."""
    with contextlib.suppress(OSError):
        failure.parent.mkdir(parents=True, exist_ok=True)
        # Zeros may take no room on a disk that compresses.
        _reserve(failure).write_bytes(os.urandom(RESERVE_BYTES))


def _reserve(failure: Path) -> Path:
    return failure.with_name(".raysm-reserve")


def exit_by_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def one_line(error: BaseException) -> str:
    """Return an error's text, or else its class, as one line of at most MAX_REASON characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= MAX_REASON else text[: MAX_REASON - 1] + "…"


def exit_status_of_error(error: BaseException) -> ExitStatus:
    """Return the exit status for an error of the bootstrap's own.

    The traceback of an unexpected one goes to stderr.
    """
    if isinstance(error, RaysmError):
        return ExitStatus(error.exit_status, one_line(error))
    traceback.print_exception(error)
    text = (
        f"{type(error).__name__}: {one_line(error)} (an error inside raysm's bootstrap; "
        "its log has the traceback)"
    )
    return ExitStatus(1, text[:MAX_REASON])


def exit_status_of_driver(
    status: int, failure: Failure | None, stderr_tail: str, memory_bytes: int, oom_kills: int | None
) -> ExitStatus:
    """Return the exit status for the driver's end, an exit code or minus a signal.

    ``oom_kills`` may be unknown.
    """
    if status == 0:
        return ExitStatus(0)
    # 128 plus the signal, as in a shell: SageMaker shows the code, and users search for 137.
    exit_code = status if status > 0 else 128 - status
    if failure is not None:
        return ExitStatus(exit_code, failure.reason())
    if status > 0:
        text = f"the workload exited with code {status}"
    else:
        text = f"the workload was killed by {signal_name(-status)}"
    if status == -signal.SIGKILL:
        text += f": most likely out of memory (this machine has {memory_bytes / 2**30:.1f} GiB"
        text += (
            f"; the kernel ended {oom_kills} of its processes for that meanwhile)"
            if oom_kills
            else ")"
        )
        # A process killed by SIGKILL cannot log the reason; its last lines are about something
        # else.
        return ExitStatus(exit_code, text)
    return ExitStatus(exit_code, _with_tail(text, stderr_tail))


def _with_tail(text: str, tail: str) -> str:
    room = MAX_REASON - len(text) - 1
    if fatal := FATAL.findall(tail):
        error, frames = fatal[-1]
        # The user's frames come first; below them are raysm's own, and a list of all extension
        # modules.
        tail = f"{error}{OWN_FRAME.sub('', frames)}"[:room]
    elif checks := RAY_CHECK.findall(tail):
        tail = checks[-1][:room]
    tail = tail.strip()
    if len(tail) > room:
        # The end of a traceback or log contains the error.
        tail = "…" + tail[len(tail) - room + 1 :]
    return f"{text}\n{tail}".strip()


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exception_beside(record: Path) -> Path:
    return record.with_name(Path(EXCEPTION).name)


def end_beside(record: Path) -> Path:
    """Return the file that a driver of a kind with ``marks_end`` makes when its workload ends."""
    return record.with_name("ended")


def read_failure(record: Path) -> Failure | None:
    with contextlib.suppress(InvalidConfig, InvalidRequest):
        return Failure.read(record)
    return None


def blames_cluster(failure: Failure) -> bool:
    """Return whether the driver failed because of Ray or an instance.

    The bootstrap itself knows that cause better.

    An exception of a user's task also arrives as an error of Ray, but does not count.
    """
    kind = failure.error_type
    of_ray = kind.startswith("ray.exceptions.") and not kind.startswith(
        "ray.exceptions.RayTaskError"
    )
    return of_ray or kind in (InstanceLost.__name__, RayFailed.__name__)


def report_startup_failure(error: Exception, environ: Mapping[str, str]) -> ExitStatus:
    """Log why this instance cannot start, write the failure file, and return the exit status."""
    status = exit_status_of_error(error)
    remark(status.reason or "")
    # The output folder itself may be unusable; the exit code and the log still have the reason.
    with contextlib.suppress(OSError, ValueError):
        status.write(base_paths(environ).failure)
    return status
