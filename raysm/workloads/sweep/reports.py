"""Reports of trials: a function reports by a call, a script by a line of its output."""

import contextlib
import json
import math
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from raysm.errors import InvalidRequest
from raysm.request.codec import from_json, to_json

__all__ = ["RESTORED", "Report", "listener", "listening", "parse", "report_of", "send"]

RESTORED = "restored"
"""Folder inside a trial's folder: the checkpoint that the trial continues from."""

# A JSON line like raysm's events, but the trial's worker reads it, so it never reaches the job's log.
MARK = '{"raysm_report": 1, '
"""How the line of a report begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """One report."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    """Finite values by name."""
    not_finite: tuple[str, ...] = ()
    """Names of the metrics that were NaN or infinite."""
    step: int | None = None
    """Step of the work."""
    checkpoint: str | None = None
    """Folder with what the trial needs to continue from here."""


Listener = Callable[[Report], None]

_listener: Listener | None = None


def listener() -> Listener | None:
    """Return the function that receives the reports of this process; None outside of trials."""
    return _listener


@contextlib.contextmanager
def listening(take: Listener) -> Iterator[None]:
    """Call ``take`` with each report of this process while the context lasts."""
    # A global of the process, since a trial runs in a thread and may report from others.
    global _listener
    before, _listener = _listener, take
    try:
        yield
    finally:
        _listener = before


def report_of(metrics: Mapping[str, float], step: int | None, checkpoint: str | Path | None) -> Report:
    """Return a report of these values.

    Raises:
        InvalidRequest: The checkpoint is not a folder.
    """
    if checkpoint is not None and not Path(checkpoint).is_dir():
        raise InvalidRequest(f"report: checkpoint must be an existing folder, got {str(checkpoint)!r}")
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    return Report(
        metrics=finite,
        not_finite=tuple(name for name in metrics if name not in finite),
        step=step,
        # Absolute, because the script may change its working folder before the checkpoint is copied.
        checkpoint=None if checkpoint is None else str(Path(checkpoint).absolute()),
    )


def send(report: Report, trial: Path) -> str:
    """Return a script's report as a line. Its checkpoint is copied first, because the script continues at once."""
    if report.checkpoint is not None:
        # The copy is inside the trial's folder, which is removed with the trial.
        copy = trial / f"checkpoint-{secrets.token_hex(4)}"
        shutil.copytree(report.checkpoint, copy)
        report = replace(report, checkpoint=str(copy))
    return MARK + json.dumps(to_json(report))[1:]


def parse(text: str) -> Report | None:
    """Return the report in a line, or None if the line is not a report."""
    if not text.startswith(MARK):
        return None
    try:
        data = json.loads(text)
        data.pop("raysm_report")
        return from_json(Report, data, "report")
    except (ValueError, RecursionError, InvalidRequest):  # scripts may print anything, this mark too
        return None
