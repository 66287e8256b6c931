"""Find out why a worker failed, and which of several failures is the cause.

The evidence is the exit status and the end of stderr. All functions here are pure. A worker that
fails because another one is gone often seems to end first, by the clock of its own instance. So the
evidence counts more than the time.
"""

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from raysm.errors import InvalidInput, InvalidRequest, MetricDiverged, RaysmError, WorkerFailed
from raysm.instance.exit_status import signal_name

HEADER = "Traceback (most recent call last):"
EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<text>.*))?$")
OWN: dict[str, type[RaysmError]] = {
    f"{kind.__module__}.{kind.__name__}": kind
    for kind in (InvalidRequest, InvalidInput, MetricDiverged)
}
"""raysm's own errors after which a retry would fail in the same way."""
LAST_LINES = 5
USAGE_ERROR = re.compile(r"\S+: error: ")

CAUSE_S = 5.0
"""Seconds to wait for the cause of a lost connection: a peer's end is seen later than the end of
its connections."""

LOST_PEER = re.compile(
    r"connection (was )?(likely )?(closed|reset|aborted)|broken pipe|socket (is )?closed"
    r"|caused pair closure|got 0 bytes|remote (process|rank)|nccl communicator was aborted"
    r"|collective operation timeout|timed out waiting \d+ ?ms for (recv|send)",
    re.IGNORECASE,
)
"""Messages of gloo, NCCL and torch's store when the other end of a connection is gone."""

KILLED, BY_ITSELF, LOST_A_PEER, ENDED = range(4)
"""How strongly a failure points to the cause, the strongest first; raysm kills workers only after a
failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    error: WorkerFailed
    at_s: float
    was_ended: bool = False
    """raysm ended it, because another one had failed or a stop was asked for."""


def attribute_failure(rank: int, host: str, status: int, stderr: str) -> WorkerFailed:
    code = status if status > 0 else 128 - status
    exception = _exception(stderr) if status > 0 else None
    if exception is not None:
        kind, text, trace = exception
        return WorkerFailed(rank, host, kind, text, trace, code)
    lines = [line.strip() for line in stderr.strip().splitlines()[-LAST_LINES:] if line.strip()]
    # argparse writes its usage above its error.
    last = " ".join(lines[-1:] if lines and USAGE_ERROR.match(lines[-1]) else lines)
    if status > 0:
        return WorkerFailed(rank, host, f"exit code {status}", last, "", code)
    # On an instance SIGKILL nearly always comes from the kernel's OOM killer.
    memory = "; most likely out of memory" if signal_name(-status) == "SIGKILL" else ""
    return WorkerFailed(rank, host, f"killed by {signal_name(-status)}{memory}", last, "", code)


def find_cause(failures: Iterable[Failure]) -> WorkerFailed | None:
    first = min(failures, key=lambda failure: (_evidence(failure), failure.at_s), default=None)
    return first.error if first is not None else None


def blame_early_end(error: WorkerFailed, ended_well: Iterable[tuple[int, str]]) -> WorkerFailed:
    """Blame a lost connection on the worker whose end with 0 cut it.

    ``ended_well`` has the rank and the host of each worker that ended with 0.
    """
    early = min(ended_well, default=None)
    if early is None or not is_consequence(error):
        return error
    rank, host = early
    what = (
        f"ended with 0 before rank {error.rank} on {error.host}, which then failed by "
        f"{error.error_type}"
    )
    return WorkerFailed(rank, host, what, error.text, error.remote_traceback, error.exit_code)


def is_consequence(error: WorkerFailed) -> bool:
    # The messages of a worker that the kernel killed do not say why it ended. Other signals may
    # follow a lost peer: NCCL's watchdog aborts.
    return error.exit_code != 128 + signal.SIGKILL and bool(
        LOST_PEER.search(f"{error.error_type} {error.text}")
    )


def _evidence(failure: Failure) -> int:
    if failure.was_ended:
        return ENDED
    if is_consequence(failure.error):
        return LOST_A_PEER
    return KILLED if failure.error.exit_code > 128 else BY_ITSELF


def as_refusal(error: WorkerFailed) -> RaysmError | None:
    kind = OWN.get(error.error_type)
    return kind(error.text) if kind is not None else None


def _exception(stderr: str) -> tuple[str, str, str] | None:
    # Torch labels the lines of a traceback with the rank if several write to one terminal.
    lines = [re.sub(r"^\[rank\d+\]: ", "", line) for line in stderr.splitlines()]
    # The last of several headers: of chained exceptions the last one ended the process, and of a
    # process that torch.multiprocessing spawned, the inner one did.
    headers = [number for number, line in enumerate(lines) if line.strip() == HEADER]
    if not headers:
        return None
    for number in range(headers[-1] + 1, len(lines)):
        match = EXCEPTION.match(lines[number])
        if match and not lines[number].startswith(" "):
            text = "\n".join([match["text"] or "", *_more(lines[number + 1 :])]).strip()
            return match["type"], text, "\n".join(lines[headers[0] :]) + "\n"
    return None


def _more(lines: list[str]) -> list[str]:
    more: list[str] = []
    for line in lines:
        if not line.strip() or re.match(r"\[[A-Z]\d{4} |[A-Z]+:|\[rank", line):
            break
        more.append(line)
    return more
