"""Metrics and progress of a program.

They are events in a job's log, reports of a sweep's trial, or lines for people.
"""

import contextlib
import json
import math
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from raysm.core.protocol.events import Event, Metric, Progress, describe_not_finite, line
from raysm.core.protocol.names import STOP_ON_NAN, TRIAL
from raysm.core.request.codec import AnyFloat, from_json, to_json
from raysm.errors import InvalidRequest, MetricDiverged
from raysm.instance import environment
from raysm.instance.variables import RAYS_JOB


def report(
    *, step: int | None = None, checkpoint: str | Path | None = None, **metrics: float
) -> None:
    """Report metrics, which ``job.metrics()`` and ``raysm metrics JOB`` then show.

    Works in a script and in a function; in a torchrun script only rank 0's metrics count, and the
    first NaN or infinite value of each other rank. A Ray task returns its figures to its caller,
    which reports them: Ray may merge the lines of its workers. Outside of a job, and in a program
    that ``ray job submit`` sent, metrics are printed for people.

    Args:
        step: Epoch, batch or other step of the work.
        checkpoint: A folder with what the work needs to continue from here. In a trial of a sweep
            it is copied to the head; anywhere else it is ignored.
        metrics: Numbers by name, the unit at the end of the name: ``loss=0.25, read_bytes=1e9``.
            NaN and infinities
            are values too: tables mark them, and plots break the line.

    Raises:
        InvalidRequest: There is no metric, a metric is not a number, the step is not a whole
            number, or the checkpoint is not a folder.
        MetricDiverged: A value of the metric of the job's ``stop_on_nan`` is not finite; do not
            catch it, because the job ends.
    """
    if not metrics:
        raise InvalidRequest("report takes metrics by name, report(loss=0.25), and got none")
    values = numbers(metrics)
    step = None if step is None else _whole(step)
    variables = environment.inherited()
    rank = variables.get("RANK")
    trial_folder = variables.get(TRIAL)
    take = listener()
    is_trial = take is not None or bool(trial_folder)
    # All ranks of a torchrun script run the same lines; several values for a step would make the
    # curve jump.
    if rank not in (None, "0"):
        values = {} if is_trial else _first_not_finite(values)
        if not values:
            return
    diverged = None
    if is_trial:
        report_made = report_of(values, step, checkpoint)
        if take is not None:
            take(report_made)
            return
        lines = [report_line(report_made, Path(str(trial_folder)))]
    # A job of Ray's own prints into Ray's log, which only people read.
    elif RAYS_JOB not in variables and environment.base_paths(variables).resource_config.exists():
        # Another launcher may use the name for something else.
        is_number = rank is not None and rank.isdecimal()
        metrics_made = metrics_of(values, step, int(rank or 0) if is_number else None)
        lines = [line(metric) for metric in metrics_made]
        diverged = find_diverged(metrics_made, variables.get(STOP_ON_NAN))
    else:
        lines = [text_line(values, step)]
    # One write, so that another process that shares this output cannot cut a line in two.
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    if diverged is not None:
        raise MetricDiverged(describe_not_finite(diverged))


def restored() -> Path | None:
    """Return the checkpoint folder that a sweep's trial continues from; None at its beginning.

    It is the last one that the trial gave to ``report(checkpoint=…)`` before its instance was lost
    or the job was interrupted; with ``stop="pbt"`` it may be another trial's.
    """
    folder = environment.inherited().get(TRIAL)
    path = Path(folder) / RESTORED if folder else None
    return path if path is not None and path.is_dir() else None


def numbers(metrics: Mapping[str, object]) -> dict[str, float]:
    return {name: _number(name, value) for name, value in metrics.items()}


def metrics_of(
    values: Mapping[str, float], step: int | None, rank: int | None = None
) -> list[Metric]:
    """Return values as metrics, all with the same time; those that are not finite name the rank."""
    now_s = time.time()
    return [
        Metric(
            name=name,
            value=value,
            step=step,
            rank=None if math.isfinite(value) else rank,
            time_s=now_s,
        )
        for name, value in values.items()
    ]


def find_diverged(metrics: Iterable[Metric], name: str | None) -> Metric | None:
    """Return the value of the metric ``name`` if it is not finite; None without one."""
    found = (each for each in metrics if each.name == name and not math.isfinite(each.value))
    return next(found, None)


_said: set[str] = set()
"""Metrics of which this process, whose rank is not 0, has reported a value that is not finite."""


def _first_not_finite(values: Mapping[str, float]) -> dict[str, float]:
    first = {
        name: value
        for name, value in values.items()
        if not math.isfinite(value) and name not in _said
    }
    _said.update(first)
    return first


def text_line(values: Mapping[str, float], step: int | None) -> str:
    text = ", ".join(f"{name} {value:.6g}" for name, value in values.items())
    return text if step is None else f"step {step}: {text}"


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, str | bytes):
            raise TypeError(value)
        return float(value)  # type: ignore[arg-type]  # a tensor or a NumPy scalar too
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise InvalidRequest(f"report: {name} must be a number, got {value!r}") from error


def _whole(step: object) -> int:
    try:
        whole = int(step)  # type: ignore[call-overload]  # a NumPy scalar or a tensor too
        if whole == step:
            return int(whole)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise InvalidRequest(f"report: step must be a whole number, got {step!r}")


RESTORED = "restored"
"""Folder inside a trial's folder: the checkpoint that the trial continues from."""

MARK = '{"raysm_report": 1, '


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    metrics: Mapping[str, AnyFloat] = field(default_factory=dict)
    step: int | None = None
    checkpoint: str | None = None
    """Folder with what the trial needs to continue from here."""


Listener = Callable[[Report], None]

_listener: Listener | None = None


def listener() -> Listener | None:
    return _listener


@contextlib.contextmanager
def listening(take: Listener) -> Iterator[None]:
    # A global of the process, since a trial runs in a thread and may report from others.
    global _listener
    before = _listener
    _listener = take
    try:
        yield
    finally:
        _listener = before


def report_of(
    metrics: Mapping[str, float], step: int | None, checkpoint: str | Path | None
) -> Report:
    if checkpoint is not None and not Path(checkpoint).is_dir():
        raise InvalidRequest(
            f"report: checkpoint must be an existing folder, got {str(checkpoint)!r}"
        )
    return Report(
        metrics=dict(metrics),
        step=step,
        # Absolute, because the script may change its working folder before the checkpoint is
        # copied.
        checkpoint=None if checkpoint is None else str(Path(checkpoint).absolute()),
    )


def report_line(report: Report, trial: Path) -> str:
    """Return a script's report as a line.

    The report's checkpoint is copied first, because the script continues at once.
    """
    if report.checkpoint is not None:
        # The copy is inside the trial's folder, which is removed with the trial.
        copy = trial / f"checkpoint-{secrets.token_hex(4)}"
        shutil.copytree(report.checkpoint, copy)
        report = replace(report, checkpoint=str(copy))
    return MARK + json.dumps(to_json(report))[1:]


def parse(text: str) -> Report | None:
    if not text.startswith(MARK):
        return None
    try:
        data = json.loads(text)
        data.pop("raysm_report")
        return from_json(Report, data, "report")
    # Scripts may print anything, this mark too.
    except (ValueError, RecursionError, InvalidRequest):
        return None


EmitEvent = Callable[[Event], None]

# Five a second look like movement; a line for each of many small blocks would bury the log.
INTERVAL_S = 0.2


class ProgressThrottle:
    def __init__(self, phase: str, total: int, unit: str, to: EmitEvent, *, done: int = 0) -> None:
        self._phase = phase
        self._total = total
        self._unit = unit
        self._to = to
        self._done = done
        self._last = time.monotonic()
        self._emit_progress()

    def add(self, done: int) -> None:
        self.reach(self._done + done)

    def reach(self, done: int) -> None:
        if done == self._done:
            return
        self._done = done
        now = time.monotonic()
        # The last event is always emitted, however soon it comes: displays close their bar on it.
        if self._done >= self._total or now - self._last >= INTERVAL_S:
            self._last = now
            self._emit_progress()

    def _emit_progress(self) -> None:
        self._to(Progress(phase=self._phase, done=self._done, total=self._total, unit=self._unit))
