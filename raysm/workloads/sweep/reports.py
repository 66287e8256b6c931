"""What a trial says of itself: in the process of a function by a call, from a script as one line of its output.

What flows in is what user code gives to ``raysm.report``, what flows out is a ``Report``, and a checkpoint that is
whole whatever the script does next.
"""

import contextlib
import json
import math
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from raysm.errors import InvalidRequest
from raysm.request.codec import from_json, to_json

__all__ = ["RESTORED", "Report", "listener", "listening", "parse", "report_of", "send"]

RESTORED = "restored"
"""In the folder of a trial: the checkpoint that the trial goes on from."""

# A JSON line like raysm's events, but for the process above: it never reaches the job's log.
MARK = '{"raysm_report": 1, '
"""How a report's line begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """One report."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    """By name; what was not finite is left out."""
    not_finite: tuple[str, ...] = ()
    """Names of those that were not."""
    step: int | None = None
    """Of the work."""
    checkpoint: str | None = None
    """Folder of what is needed to go on from here."""


Listener = Callable[[Report], None]

_listener: Listener | None = None


def listener() -> Listener | None:
    """Return who takes the reports of this process; None where nobody does."""
    return _listener


@contextlib.contextmanager
def listening(take: Listener) -> Iterator[None]:
    """Give every report of this process to ``take`` meanwhile."""
    # Of the process: Tune runs one trial in each, in a thread that is not the main one.
    global _listener
    before, _listener = _listener, take
    try:
        yield
    finally:
        _listener = before


def report_of(metrics: Mapping[str, float], step: int | None, checkpoint: str | Path | None) -> Report:
    """Return a report of these values.

    Raises:
        InvalidRequest: The checkpoint is no folder.
    """
    # Said where it is wrong: Tune would say it later, and elsewhere.
    if checkpoint is not None and not Path(checkpoint).is_dir():
        raise InvalidRequest(f"report: checkpoint is a folder that was written before, got {str(checkpoint)!r}")
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    return Report(
        metrics=finite,
        not_finite=tuple(name for name in metrics if name not in finite),
        step=step,
        # Absolute: the script may change its folder before it is copied.
        checkpoint=None if checkpoint is None else str(Path(checkpoint).absolute()),
    )


def send(report: Report, trial: Path) -> str:
    """Return a script's report as a line; its checkpoint is copied first, because the script goes on at once."""
    if report.checkpoint is not None:
        # In the trial's folder, which is removed with it, whatever becomes of the script.
        copy = trial / f"checkpoint-{secrets.token_hex(4)}"
        shutil.copytree(report.checkpoint, copy)
        report = Report(metrics=report.metrics, not_finite=report.not_finite, step=report.step, checkpoint=str(copy))
    return MARK + json.dumps(to_json(report))[1:]


def parse(text: str) -> Report | None:
    """Return the report that a line holds; None of every other line."""
    if not text.startswith(MARK):
        return None
    try:
        data = json.loads(text)
        data.pop("raysm_report")
        return from_json(Report, data, "report")
    except (ValueError, RecursionError, InvalidRequest):  # a script may print anything, this mark too
        return None
