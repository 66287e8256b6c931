"""A job's card as HTML, drawn from its log and its description.

The card has no style sheet, script, link or image. So every notebook can show it, it does not change the page, and it
remains when the notebook is opened without a kernel. Its colors are those of the text around it, or half transparent.
"""

import html
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from raysm.client.costs.bill import dollars
from raysm.client.experiments.experiment import goal_of
from raysm.client.job import text as job_repr
from raysm.client.job.description import Description
from raysm.client.logs.rendering import Phase, metric_value, sentence
from raysm.contract.events import Metric, Progress, State, parse
from raysm.request import Target
from raysm.views.sparkline import sparkline

__all__ = [
    "FRAME",
    "MAX_BYTES",
    "SMALL",
    "TEXT",
    "Moment",
    "Seen",
    "Watched",
    "card",
    "clean",
    "facts_html",
    "words",
]

MAX_LINES = 8
MAX_CHARACTERS = 180
"""Maximum number of log lines, and of characters per line."""

MAX_POINTS = 240
"""Maximum number of points of a curve; if exceeded, every second point is dropped."""

# CSI sequences (colors, cursor), OSC (titles, links), and the two-character ones.
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters except line breaks and tabs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """The state of a job as far as its log shows it."""

    joined: tuple[int, int] | None = None
    """The number of joined instances, and of all instances; None before the first one joins."""
    stage: str = ""
    """The last state, as a sentence."""
    phases: tuple[tuple[str, float, str], ...] = ()
    """Name, progress (0 to 1), and a sentence of each phase."""
    curves: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = ()
    """Name and points of each metric; x is the step, or else the seconds since the first value."""
    usage: tuple[tuple[str, tuple[tuple[str, float], ...]], ...] = ()
    """The latest utilization of each instance in percent, by name: ``cpu``, ``memory``, ``gpu``."""
    lines: tuple[str, ...] = ()
    """The last lines of the log, each prefixed with its instance."""


class Watched:
    """Collects the state of a job from the lines of its log."""

    def __init__(self) -> None:
        """Start with an empty state."""
        self._joined: tuple[int, int] | None = None
        self._stage = ""
        self._phases: dict[str, tuple[Phase, Progress]] = {}
        self._curves: dict[str, _Curve] = {}
        self._usage: dict[str, dict[str, float]] = {}
        self._lines: deque[str] = deque(maxlen=MAX_LINES)

    def add(self, host: str, text: str) -> None:
        """Take one line of an instance's log."""
        match parse(text):
            case None:
                self._lines.append(f"{host} | {clean(text)}")
            case State() as state:
                self._take_state(state)
            case Progress() as progress:
                phase, _ = self._phases.get(progress.phase) or (Phase(progress), progress)
                self._phases[progress.phase] = (phase, progress)
            case Metric(host="") as metric:
                self._curves.setdefault(metric.name, _Curve()).add(metric)
            case Metric() as metric if metric.name.endswith("_percent"):
                self._usage.setdefault(metric.host, {})[metric.name.removesuffix("_percent")] = metric.value

    def _take_state(self, state: State) -> None:
        self._stage = clean(sentence(state)) or self._stage
        if state.count is not None and state.total is not None:
            self._joined = (state.count, state.total)

    def seen(self) -> Seen:
        """Return the state so far."""
        return Seen(
            joined=self._joined,
            stage=self._stage,
            phases=tuple((name, _share(last), phase.sentence(last)) for name, (phase, last) in self._phases.items()),
            curves=tuple((name, tuple(curve.points)) for name, curve in self._curves.items()),
            usage=tuple((host, tuple(shares.items())) for host, shares in sorted(self._usage.items(), key=_by_number)),
            lines=tuple(self._lines),
        )


class _Curve:
    """The points of one metric, thinned as they arrive."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._first_s: float | None = None
        self._every = 1
        self._count = 0

    def add(self, metric: Metric) -> None:
        self._first_s = metric.time_s if self._first_s is None else self._first_s
        x = float(metric.step) if metric.step is not None else metric.time_s - self._first_s
        # The latest point is always kept; the next one replaces it unless its index is a multiple of ``_every``.
        if self._count % self._every and self.points:
            self.points.pop()
        self.points.append((x, metric.value))
        self._count += 1
        if len(self.points) > MAX_POINTS:
            self.points = self.points[::2]
            self._every *= 2


def clean(text: str) -> str:
    """Return a line without escape sequences and control characters, shortened if it is long."""
    # A progress bar overwrites itself with carriage returns; only its last state is kept.
    plain = CONTROL.sub("", ESCAPES.sub("", text.rstrip().rpartition("\r")[2]))
    return plain if len(plain) <= MAX_CHARACTERS else plain[: MAX_CHARACTERS - 1] + "…"


def _share(progress: Progress) -> float:
    # A phase with nothing to do is done.
    return min(1.0, max(0.0, progress.done / progress.total)) if progress.total else 1.0


def _by_number(item: tuple[str, object]) -> tuple[int, str]:
    digits = item[0].rpartition("-")[2]
    return (int(digits) if digits.isdecimal() else 0, item[0])


# Drawing

MAX_BYTES = 30_000
"""Maximum size of a card in UTF-8: cards are sent twice a second, maybe over a slow connection."""

MAX_CHARTS = 2
# A card higher than the screen would jump.
MAX_PHASES = 6
MAX_INSTANCES = 8
MAX_SHARES = 4
MAX_NAME = 60
"""Maximum numbers of charts, phases, instances, utilization columns, and characters of a name."""

FRAME = "border:1px solid rgba(128,128,128,.4);border-radius:6px;padding:10px 14px;max-width:860px;line-height:1.5"
SMALL = "opacity:.75;font-size:90%"
TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;margin:6px 0;font-size:85%"


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """The content of a card."""

    job: Description
    target: Target
    seen: Seen
    usd: float | None
    """The cost so far, or None."""
    now_s: float
    """Seconds since the epoch."""
    trouble: str = ""
    """The error of the last request to the service, or empty."""
    facts: tuple[tuple[str, str], ...] = ()
    """Further (label, text) pairs."""


def card(moment: Moment) -> str:
    """Return a card of at most ``MAX_BYTES``."""
    # If the card is too long, charts are left out first, then phases and utilization.
    shorter = replace(moment, seen=replace(moment.seen, phases=(), usage=()))
    for shown, charts in ((moment, MAX_CHARTS), (moment, 0), (shorter, 0)):
        # HTML forbids control characters.
        drawn = CONTROL.sub("", _card(shown, charts))
        if len(drawn.encode()) <= MAX_BYTES:
            break
    return drawn


def words(moment: Moment) -> str:
    """Return the card as a few lines of text."""
    phases = [sentence for _, _, sentence in moment.seen.phases[-MAX_PHASES:]]
    facts = [f"{label}: {text}" for label, text in _facts(moment)]
    return "\n".join([job_repr.text(moment.job, moment.target, moment.now_s), *facts, *phases])


def _card(moment: Moment, charts: int) -> str:
    parts = [
        # At the card's time, which is also shown at its end.
        job_repr.html(moment.job, moment.target, moment.now_s),
        facts_html(_facts(moment)),
        *(_bar(*phase) for phase in moment.seen.phases[-MAX_PHASES:]),
        _charts(moment.seen, charts),
        _usage(moment.seen),
        _log(moment.seen.lines),
        _in_code(moment.job.name),
        f'<div style="{SMALL}">{_as_of(moment)}</div>',
    ]
    return f'<div style="{FRAME}">{"".join(parts)}</div>'


def _facts(moment: Moment) -> list[tuple[str, str]]:
    seen, job = moment.seen, moment.job
    facts = [("stage", seen.stage)] if seen.stage and not job.status.is_terminal else []
    if seen.joined is not None:
        facts.append(("instances", "{} of {} joined".format(*seen.joined)))
    facts.append(("cost", _cost(moment)))
    facts += [(name, metric_value(points[-1][1])) for name, points in _chosen(seen, 6)]
    return [*facts, *moment.facts]


def _cost(moment: Moment) -> str:
    if not moment.target.is_billed:
        return "nothing: it runs on this machine"
    if moment.usd is None:
        return "unknown"
    return dollars(moment.usd) if moment.job.status.is_terminal else f"about {dollars(moment.usd)} so far"


def facts_html(rows: Sequence[tuple[str, str]]) -> str:
    """Return (label, text) pairs side by side, escaped."""
    cells = "".join(
        f'<div><span style="{SMALL}">{_text(label)}</span><br>{html.escape(text[:200])}</div>' for label, text in rows
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:4px 28px;margin:8px 0">{cells}</div>'


def _bar(name: str, share: float, sentence: str) -> str:
    return (
        f'<div style="margin:4px 0"><div style="background:rgba(128,128,128,.25);border-radius:3px;height:8px">'
        f'<div style="background:#0072b2;border-radius:3px;height:8px;width:{100 * share:.1f}%"></div></div>'
        f'<span style="{SMALL}">{html.escape(sentence[:160])}</span></div>'
    )


def _chosen(seen: Seen, most: int) -> list[tuple[str, tuple[tuple[float, float], ...]]]:
    """Return the metrics to show; metrics with a known goal, losses and curves come first."""
    curves = [(name, points) for name, points in seen.curves if points]
    curves.sort(key=lambda curve: (goal_of(curve[0]) is None, "loss" not in curve[0], len(curve[1]) < 2))
    return curves[:most]


def _charts(seen: Seen, most: int) -> str:
    drawn = [(name, points) for name, points in _chosen(seen, most) if len(points) > 1]
    charts = [sparkline(points, name[:MAX_NAME]) for name, points in drawn]
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px">{"".join(charts)}</div>' if charts else ""


def _usage(seen: Seen) -> str:
    if not seen.usage:
        return ""
    names = list(dict.fromkeys(name for _, shares in seen.usage for name, _ in shares))[:MAX_SHARES]
    rows = [(host, dict(shares)) for host, shares in seen.usage]
    # One row with the mean: the dashboard shows each instance.
    if len(rows) > MAX_INSTANCES:
        rows = [(f"{len(rows)} instances, mean", _mean([shares for _, shares in rows]))]
    cells = [(_text(host), "".join(_share_cell(shares.get(name)) for name in names)) for host, shares in rows]
    body = "".join(f"<tr><td>{host}</td>{of_host}</tr>" for host, of_host in cells)
    head = "".join(f"<th>{_text(name.replace('_', ' '))}</th>" for name in names)
    return f'<table style="font-size:90%"><tr><th></th>{head}</tr>{body}</table>'


def _mean(every: Sequence[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for shares in every for name in shares)
    values = {name: [shares[name] for shares in every if name in shares] for name in names}
    return {name: sum(of_name) / len(of_name) for name, of_name in values.items()}


def _share_cell(share: float | None) -> str:
    if share is None:
        return "<td></td>"
    # psutil may report more than 100.
    width = min(100.0, max(0.0, share))
    # A gradient shows a bar and its figure in one cell, in any theme.
    bar = f"linear-gradient(to right,rgba(0,114,178,.35) {width:.0f}%,transparent {width:.0f}%)"
    return f'<td style="min-width:80px;background:{bar}">{share:.0f} %</td>'


def _log(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f'<pre style="{TEXT};background:rgba(128,128,128,.1);padding:6px">{html.escape(chr(10).join(lines))}</pre>'


def _in_code(name: str) -> str:
    code = (
        f"job = raysm.attach({name!r})\n"
        'job.status; job.progress(); job.metrics("loss"); job.plot("loss"); job.cost()\n'
        "job.logs(follow=True); job.result(); job.stop()"
    )
    summary = f'<summary style="{SMALL}">the same in code</summary>'
    return f'<details>{summary}<pre style="{TEXT}">{html.escape(code)}</pre></details>'


def _as_of(moment: Moment) -> str:
    # The date, because a card may stay in a notebook for years.
    at = datetime.fromtimestamp(moment.now_s, UTC)
    trouble = f": the service does not answer now: {moment.trouble[:300]}" if moment.trouble else ""
    return html.escape(f"as of {at:%Y-%m-%d %H:%M:%S} UTC{trouble}")


def _text(name: str) -> str:
    return html.escape(name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…")
