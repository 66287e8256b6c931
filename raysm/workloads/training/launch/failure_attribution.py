"""Why a worker failed, read from how it ended and from the last of its stderr. Pure: text in, an error out."""

import re

from raysm.bootstrap.children import signal_name
from raysm.errors import InvalidInput, InvalidRequest, WorkerFailed

__all__ = ["attribute_failure", "as_refusal"]

HEADER = "Traceback (most recent call last):"
EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<text>.*))?$")
OWN = {f"{kind.__module__}.{kind.__name__}": kind for kind in (InvalidRequest, InvalidInput)}
"""What raysm itself raises where the user asked for what cannot be: to try it again would be of no use."""
LAST_LINES = 5


def attribute_failure(rank: int, host: str, status: int, stderr: str) -> WorkerFailed:
    """Return the error that a worker's end makes.

    Args:
        rank: Which worker.
        host: Its instance.
        status: Its exit code, or minus the signal that killed it.
        stderr: The last of what it wrote there.
    """
    code = status if status > 0 else 128 - status
    exception = _exception(stderr) if status > 0 else None
    if exception is not None:
        kind, text, trace = exception
        return WorkerFailed(rank, host, kind, text, trace, code)
    last = " ".join(line for line in stderr.strip().splitlines()[-LAST_LINES:] if line.strip())
    if status > 0:
        return WorkerFailed(rank, host, f"exit code {status}", last, "", code)
    # The kernel's OOM killer sends SIGKILL, and on an instance hardly anybody else does.
    memory = "; most likely out of memory" if signal_name(-status) == "SIGKILL" else ""
    return WorkerFailed(rank, host, f"killed by {signal_name(-status)}{memory}", last, "", code)


def as_refusal(error: WorkerFailed) -> InvalidRequest | None:
    """Return raysm's own refusal of what the worker asked for; None where it failed otherwise."""
    kind = OWN.get(error.error_type)
    return kind(error.text) if kind is not None else None


def _exception(stderr: str) -> tuple[str, str, str] | None:
    """Return class, text and traceback of the last exception in ``stderr``; None where there is none."""
    # Torch labels the lines of a traceback with the rank where several write to one terminal.
    lines = [re.sub(r"^\[rank\d+\]: ", "", line) for line in stderr.splitlines()]
    # Of chained ones the last is what ended it; of a process that torch.multiprocessing spawned, the inner one is.
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
    """Return the further lines of an exception's text: up to an empty one, or one of somebody's log."""
    more: list[str] = []
    for line in lines:
        if not line.strip() or re.match(r"\[[A-Z]\d{4} |[A-Z]+:|\[rank", line):
            break
        more.append(line)
    return more
