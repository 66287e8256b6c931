"""Events of a running job: one JSON object on one line of its log.

The log is the one stream that leaves an instance on every kind of service. ``parse`` skips all
lines that are not events. JSON has no NaN: a value of a metric that is not finite is the text
``"NaN"``, ``"Infinity"`` or ``"-Infinity"``; a raysm that expects a number takes such a line for a
line of the program. ``ProgressLines`` thins out progress bars in the same log.
"""

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from raysm.core.protocol.store import put, read_json
from raysm.core.request.codec import AnyFloat, from_json, to_json
from raysm.errors import InvalidRequest

MARK = '{"raysm": 1, '
"""The beginning of every event's line. The number is the format's version, so that later ones are
skipped."""

MAX_COUNT = (1 << 63) - 1
"""The largest count or step of an event. A larger one fits into no column of SQLite, and into no
float if it is very large."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The job reached a state."""

    kind: ClassVar[str] = "state"

    name: str
    """``joined`` (one more instance; of more than 50 instances, only some have an event),
    ``formed``, ``control`` and ``dashboard`` (their ports are open), ``running``, ``gathering``,
    ``lost`` (an instance), ``rejoined``, ``stalled`` (no sign of life), ``recovered`` (a sign of
    life after that), ``stopping``, ``done``, ``failed``; readers must accept unknown names."""
    host: str = ""
    """The instance of the event."""
    detail: str = ""
    """Text for people."""
    count: int | None = None
    """Instances joined so far, for ``joined`` and ``formed``."""
    total: int | None = None
    """Instances requested, for ``joined`` and ``formed``."""
    address: str | None = None
    """The URL of the dashboard or of the head's control channel, for ``dashboard`` and
    ``control``."""
    time_s: float = field(default_factory=time.time)
    """Seconds since the epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Progress of a phase."""

    kind: ClassVar[str] = "progress"

    phase: str
    """``similarity``, ``gather`` …; each has a bar of its own."""
    done: int
    total: int
    unit: str = "blocks"
    """``rows``, ``blocks``, ``bytes`` …"""
    time_s: float = field(default_factory=time.time)


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One value of a metric."""

    kind: ClassVar[str] = "metric"

    name: str
    """The name, with the unit at the end: ``peak_memory_bytes``."""
    value: AnyFloat
    """A number; one that is not finite is written as the text ``NaN``, ``Infinity`` or
    ``-Infinity``."""
    host: str = ""
    """The instance that it describes; empty for the job."""
    step: int | None = None
    """Training step; None if there is none."""
    rank: int | None = None
    """The rank that a value is of, for values that are not finite and those that are found in a
    worker's printed lines; None elsewhere."""
    call: int | None = None
    """The number of the session's call that reported it; None for a job without calls."""
    time_s: float = field(default_factory=time.time)


def describe_not_finite(metric: Metric) -> str:
    """Return a value that is not finite in words: ``loss is nan at step 12 on rank 2``."""
    step = "" if metric.step is None else f" at step {metric.step}"
    rank = "" if metric.rank is None else f" on rank {metric.rank}"
    return f"{metric.name} is {metric.value}{step}{rank}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionCall:
    """A call or cell of a session reported its first metrics, or has ended after reporting some."""

    kind: ClassVar[str] = "call"

    number: int
    """From 1, in the order of arrival; calls that report nothing have a number too, but no
    event."""
    name: str
    """The function, or the file of the cell."""
    status: str
    """``running``, ``done``, ``stopped`` (interrupted), ``failed``; readers must accept unknown
    ones."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of the call by name."""
    reason: str = ""
    """Why it failed."""
    seconds: float = 0.0
    """How long it has run."""
    time_s: float = field(default_factory=time.time)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """The status of a trial of a sweep."""

    kind: ClassVar[str] = "trial"

    number: int
    """From 0, in the order of their starts."""
    status: str
    """``running``, ``done``, ``stopped`` (ended early), ``failed``; readers must accept unknown
    ones."""
    params: Mapping[str, Any] = field(default_factory=dict)
    value: float | None = None
    """The last report of the sweep's metric; None if there is none, or if it is not finite."""
    metrics: Mapping[str, AnyFloat] = field(default_factory=dict)
    """The last report of each metric."""
    reports: int = 0
    """Number of reports; those that a checkpoint repeats count once."""
    reason: str = ""
    """Why it failed, or was ended early because its metric was not finite."""
    host: str = ""
    """The instance of its first worker."""
    seconds: float = 0.0
    """How long it took."""
    time_s: float = field(default_factory=time.time)


@dataclass(frozen=True, kw_only=True, slots=True)
class Digest:
    """The digest of a pickle that the job left.

    People who may write to the outputs cannot write into the log.
    """

    kind: ClassVar[str] = "digest"

    file: str
    """``result.pkl`` or ``raysm/exception.pkl``; of several events about a file the last one
    counts."""
    sha256: str
    time_s: float = field(default_factory=time.time)


Event: TypeAlias = State | Progress | Metric | SessionCall | Trial | Digest


@dataclass(frozen=True, slots=True)
class _Envelope:
    """A field that admits every event, for ``from_json``."""

    event: Event


def line(event: Event) -> str:
    # ``parse`` looks for the mark byte for byte, so one dumps of the whole would not do.
    return MARK + json.dumps(to_json(event))[1:]


def parse(text: str) -> Event | None:
    """Return the event in ``text``, one line of a log; None if there is none."""
    # Anywhere in the line: a log may put a host or a time first.
    start = text.find(MARK)
    if start < 0:
        return None
    try:
        data = json.loads(text[start:])
        data.pop("raysm")
        event: Event = from_json(_Envelope, {"event": data}, "event").event
    # User code may print anything, this mark too.
    except (ValueError, RecursionError, InvalidRequest):
        return None
    values = (getattr(event, each.name) for each in fields(event))
    return (
        None
        if any(isinstance(value, int) and abs(value) > MAX_COUNT for value in values)
        else event
    )


def is_usage(event: Event) -> bool:
    """Return whether an event only says how busy an instance is, as one that waits says too."""
    return isinstance(event, Metric) and event.host != "" and event.step is None


TRIALS = "trials.json"
TABLE = "trials.parquet"
"""Name of the same as a table, with a column for each parameter and metric."""
DIVERGED = re.compile(r"(?P<metric>.+) is (?P<value>nan|-?inf) at (?P<where>.+)", re.DOTALL)
"""The reason of a trial that was ended because its metric became NaN or infinite:
``loss is nan at step 3``."""
BEST = "best"
"""Folder with the output of the best trial: its last checkpoint, or its files in $SM_MODEL_DIR."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trials:
    metric: str
    mode: Literal["min", "max"]
    trials: tuple[Trial, ...]
    best: int | None
    notes: tuple[str, ...] = ()

    def write(self, folder: Path) -> Path:
        """Write them as JSON, without values that are not finite.

        Earlier versions of raysm refuse to read those.
        """
        trials = (replace(trial, metrics=_finite(trial.metrics)) for trial in self.trials)
        path = folder / TRIALS
        put(path, json.dumps(to_json(replace(self, trials=tuple(trials))), indent=1) + "\n")
        return path

    @staticmethod
    def read(folder: Path) -> "Trials":
        found: Trials = from_json(Trials, read_json(folder / TRIALS), TRIALS)
        return replace(found, trials=tuple(found._with_nan(trial) for trial in found.trials))

    def _with_nan(self, trial: Trial) -> Trial:
        found = DIVERGED.fullmatch(trial.reason)
        if found is None or trial.status != "stopped":
            return trial
        return replace(trial, metrics={**trial.metrics, self.metric: float(found["value"])})


def _finite(metrics: Mapping[str, float]) -> Mapping[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def where_diverged(trial: Trial) -> str:
    """Return at which report a trial was ended because its metric was not finite: ``step 3``.

    The text is "" for other trials.
    """
    found = DIVERGED.fullmatch(trial.reason) if trial.status == "stopped" else None
    return "" if found is None else found["where"]


def own_trials(folder: Path) -> Trials | None:
    """Return the trials that a sweep left in a folder; None also for a user's file of that name."""
    try:
        return Trials.read(folder)
    except (OSError, ValueError):
        return None


def best_of(trials: Sequence[Trial], mode: str) -> Trial | None:
    """Return the trial with the best last value, the first of equal ones.

    Trials that were ended early count, too.
    """
    having = [
        trial for trial in trials if trial.value is not None and trial.status in ("done", "stopped")
    ]
    sign = 1 if mode == "min" else -1
    return min(having, key=lambda trial: (sign * (trial.value or 0.0), trial.number), default=None)


INTERVAL_S = 1.0
"""Seconds between two lines of one bar."""
MAX_LINE_BYTES = 1 << 16
"""A longer line is cut, so that output without line ends does not fill the memory."""
MAX_BARS = 256

UP = re.compile(rb"\x1b\[(\d*)A")
LINE = re.compile(rb"([^\r\n]*+)(\n|\r)()")
PIECE = re.compile(rb"((?:[^\r\n\x1b]|\x1b(?!\[\d*A))*+)(\n|\r|" + UP.pattern + rb")")
"""Text and what ends it: a line end, a return to the begin of the line, or a move to the line
above. ``LINE`` is for output without such moves, and three times as fast."""
BAR = re.compile(rb"\s*\d+%\||\s*[\d.]+\w*\s\[\d+:\d\d")
"""Where the changing part of tqdm's bars begins, ``12%|`` or ``340it [00:07``."""
TIMES = re.compile(rb"\[\d+:\d\d.*$")
"""The part of tqdm's bars that changes although nothing was done."""
LABEL = re.compile(rb"\([^()]*pid=\d+[^()]*\)\s*(?:\x1b\[\d*m)*\s*$")
"""What Ray puts before the lines of its workers."""
OWN = re.compile(rb'(?<=[^\r\n])\{"raysm(?:_report)?": 1, ')
"""An event, or a report of a trial, after other text on its line: that of a ``print`` without a
line end, or a bar."""
GREETING = re.compile(
    rb"\[Gloo\] Rank \d+ is connected to (\d+) peer ranks\. "
    rb"Expected number of connected peer ranks is : \1(?:\x1b\[\d*m| \[repeated.*|\s)*$"
)
"""What gloo prints in each rank for each of its groups, if nothing is wrong."""


class ProgressLines:
    r"""Turns output with progress bars into whole lines that end in ``\n``.

    Of each bar at most one line in ``INTERVAL_S`` seconds is passed on, and its last state. A bar
    is redrawn after a ``\r``. Several bars below each other are redrawn by line ends and moves of
    the cursor up; the empty lines of these are dropped. All other lines are passed on as soon as
    they end. An event gets a separate line: readers then find it, and no text of the user is lost.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held = b""
        self._frame = b""
        """The state of a bar that is alone in its line, if it was not passed on."""
        self._shown_s = -INTERVAL_S
        self._label = b""
        self._is_redrawn = False
        """Whether a return precedes the next text."""
        self._lines_below = 0
        """Lines below the cursor, which bars have drawn."""
        self._bars: dict[bytes, tuple[float, bytes]] = {}
        """When each of several bars was passed on, and its figures, by the text before them."""
        self._waiting: dict[bytes, bytes] = {}
        """The states of these bars that were not passed on."""

    def feed(self, data: bytes) -> bytes:
        """Return the lines that ``data`` completes; a line's beginning is held until its end."""
        data = (self._held + data).replace(b"\r\n", b"\n")
        has_bars = self._frame or self._label or self._bars or self._lines_below
        if not has_bars and b"\r" not in data and not UP.search(data) and not OWN.search(data):
            end = data.rfind(b"\n") + 1
            lines = data[:end]
            self._held = data[end:]
            self._is_redrawn &= not lines
            if b"[Gloo]" in lines:
                kept = (
                    each for each in lines.splitlines(keepends=True) if not GREETING.search(each)
                )
                lines = b"".join(kept)
        else:
            lines = b"".join(self._lines(data))
        while len(self._held) > MAX_LINE_BYTES:
            lines += self._held[:MAX_LINE_BYTES] + b"\n"
            self._held = self._held[MAX_LINE_BYTES:]
        return lines

    def rest(self) -> bytes:
        """Return the lines that were held back, for the end of the output.

        The last line of the output may have no line end.
        """
        last = self._held.rstrip(b"\r") or self._frame
        lines = [*self._waiting.values(), *([last] if last else [])]
        self._held = self._frame = b""
        self._waiting.clear()
        return b"".join(text + b"\n" for text in lines)

    def _lines(self, data: bytes) -> list[bytes]:
        lines = [self._shown(key, text) for key, text in list(self._waiting.items())]
        position = 0
        piece = PIECE if UP.search(data) else LINE
        while match := piece.match(data, position):
            text, end, ups = match.groups()
            # The next byte decides whether a \r at the end belongs to a \r\n.
            if end == b"\r" and match.end() == len(data):
                break
            position = match.end()
            own = OWN.search(text)
            if own is not None and not LABEL.search(text, 0, own.start()):
                before = text[: own.start()]
                text = text[own.start() :]
                lines += [
                    self._returned(before) if self._is_redrawn else before + b"\n",
                    text + b"\n",
                ]
            elif end == b"\r":
                lines.append(self._returned(text))
            elif end.endswith(b"A"):
                self._lines_below += int(ups or 1)
                lines.append(self._bar(text))
            elif self._is_redrawn or self._label or not text.strip() or b"[Gloo]" in text:
                lines.append(self._ended(text))
            else:
                # Most lines are plain.
                lines.append(text + b"\n")
                self._frame = b""
            self._is_redrawn = end == b"\r"
        self._held = data[position:]
        return lines

    def _returned(self, text: bytes) -> bytes:
        """Return the line for a text after which the cursor returns to its begin, or nothing."""
        if b"pid=" in text and LABEL.search(text):
            self._label = text
        elif not text.strip():
            pass
        elif self._bars or self._label:
            return self._bar(self._label + text)
        else:
            self._frame = text
            now_s = self._clock()
            if now_s - self._shown_s >= INTERVAL_S:
                self._shown_s = now_s
                self._frame = b""
                return text + b"\n"
        return b""

    def _ended(self, text: bytes) -> bytes:
        """Return the line for a text that a line end follows, or nothing if it belongs to bars."""
        label = self._label
        self._label = b""
        is_blank = not text.strip()
        has_bars = bool(label or self._bars)
        is_bar = has_bars and self._is_redrawn and BAR.search(text) is not None
        if self._lines_below and (is_blank or is_bar):
            # The line end only moves the cursor to the next bar.
            self._lines_below -= 1
        elif is_blank and label:
            return b""
        elif not is_bar:
            # A line end alone closes the bar and keeps its last state.
            text = text or self._frame
            self._frame = b""
            return b"" if GREETING.search(text) else label + text + b"\n"
        return self._bar(label + text)

    def _bar(self, text: bytes) -> bytes:
        """Return the line for the state of one of several bars, or nothing."""
        if not text.strip():
            return b""
        found = BAR.search(text)
        key = text if found is None else text[: found.start()]
        if len(self._bars) >= MAX_BARS and key not in self._bars:
            self._bars.clear()
        return self._shown(key, text)

    def _shown(self, key: bytes, text: bytes) -> bytes:
        now_s = self._clock()
        figures = TIMES.sub(b"", text)
        shown_s, shown = self._bars.get(key, (-INTERVAL_S, b""))
        self._waiting.pop(key, None)
        # tqdm also draws bars again that have not moved.
        if figures == shown:
            return b""
        if now_s - shown_s < INTERVAL_S:
            self._waiting[key] = text
            return b""
        self._bars[key] = now_s, figures
        return text + b"\n"
