"""The card of a job as HTML, and the thread that redraws it until the job has ended."""

import contextlib
import html
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from raysm.core.client.costs.bill import bill_of, dollars, usd_so_far
from raysm.core.client.job.description import Description, Status, render_html, render_text
from raysm.core.client.job.experiment import Divergences, goal_of
from raysm.core.client.job.handle import Job
from raysm.core.client.logs.rendering import Phase, marked_value, sentence
from raysm.core.client.logs.stream import FOLLOW_S, JobStream
from raysm.core.client.views.card import MAX_NAME, SMALL, TEXT, facts_html, framed, in_code, short
from raysm.core.client.views.live_card import NOTEBOOKS, LiveCard, Output, output_here
from raysm.core.client.views.sparkline import plain, sparkline, thin
from raysm.core.protocol.events import Metric, Progress, State, parse
from raysm.core.protocol.names import WORKLOAD_TAG, natural
from raysm.core.request import Target
from raysm.core.request.workload import takes_calls
from raysm.errors import RaysmError

MAX_BYTES = 30_000
"""Maximum size of a card in UTF-8: cards are sent twice a second, maybe over a slow connection."""

MAX_LINES = 8
MAX_CHARACTERS = 180
"""Maximum number of log lines, and of characters per line."""

MAX_POINTS = 240

MAX_CHARTS = 2
# A card higher than the screen would jump.
MAX_PHASES = 6
MAX_INSTANCES = 8
MAX_SHARES = 4
"""Maximum numbers of charts, phases, instances, and utilization columns."""

# CSI sequences (colors, cursor), OSC (titles, links), and the two-character ones.
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")


class JobCard:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._joined: tuple[int, int] | None = None
        self._stage = ""
        self._phases: dict[str, tuple[Phase, Progress]] = {}
        self._curves: dict[str, list[tuple[float, float]]] = {}
        self._first_s: dict[str, float] = {}
        self._diverged = Divergences()
        self._usage: dict[str, dict[str, float]] = {}
        self._lines: deque[str] = deque(maxlen=MAX_LINES)

    def add(self, host: str, text: str, found: Iterable[Metric] = ()) -> None:
        """Add a line of the log, and the metrics that the job's definitions found in it."""
        for metric in found:
            self._add_metric(metric)
        match parse(text):
            case None:
                self._lines.append(f"{host} | {_clean(text)}")
            case State() as state:
                self._stage = _clean(sentence(state)) or self._stage
                if state.count is not None and state.total is not None:
                    self._joined = (state.count, state.total)
            case Progress() as progress:
                phase, _ = self._phases.get(progress.phase) or (Phase(progress), progress)
                self._phases[progress.phase] = (phase, progress)
            case Metric(host="") as metric:
                self._add_metric(metric)
            case Metric() as metric if metric.name.endswith("_percent"):
                self._usage.setdefault(metric.host, {})[metric.name.removesuffix("_percent")] = (
                    metric.value
                )

    def _add_metric(self, metric: Metric) -> None:
        name = metric.name
        points = self._curves.setdefault(name, [])
        first_s = self._first_s.setdefault(name, metric.time_s)
        points.append(
            (metric.time_s - first_s if metric.step is None else float(metric.step), metric.value)
        )
        thin(points, MAX_POINTS)
        self._diverged.add(metric)

    def html(self, job: Description, usd: float | None, now_s: float, trouble: str = "") -> str:
        # The date, because a card may stay in a notebook for years.
        shown = f"as of {datetime.fromtimestamp(now_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
        if trouble:
            shown += f": the service does not answer now: {trouble[:300]}"
        code = (
            f"job = raysm.attach({job.name!r})\n"
            'job.status; job.progress(); job.metrics("loss"); job.plot("loss"); job.cost()\n'
            "job.logs(follow=True); job.result(); job.stop()"
        )
        head = [render_html(job, self._target, now_s), facts_html(self._facts(job, usd))]
        details = [*map(_bar, self._sentences()), self._charts(), _usage(self._usage)]
        log = html.escape("\n".join(self._lines))
        foot = [
            f'<pre style="{TEXT};background:rgba(128,128,128,.1);padding:6px">{log}</pre>'
            if log
            else "",
            in_code(code),
            f'<div style="{SMALL}">{html.escape(shown)}</div>',
        ]
        whole = framed([*head, *details, *foot])
        return whole if len(whole.encode()) <= MAX_BYTES else framed([*head, *foot])

    def text(self, job: Description, usd: float | None, now_s: float) -> str:
        facts = [f"{label}: {text}" for label, text in self._facts(job, usd)]
        sentences = [sentence for _, sentence in self._sentences()]
        return "\n".join([render_text(job, self._target, now_s), *facts, *sentences])

    def _sentences(self) -> list[tuple[float, str]]:
        return [
            # A phase with nothing to do is done.
            (
                min(1.0, max(0.0, last.done / last.total)) if last.total else 1.0,
                phase.sentence(last),
            )
            for phase, last in list(self._phases.values())[-MAX_PHASES:]
        ]

    def _facts(self, job: Description, usd: float | None) -> list[tuple[str, str]]:
        facts = [("stage", self._stage)] if self._stage and not job.status.is_terminal else []
        if self._joined is not None:
            facts.append(("instances", "{} of {} joined".format(*self._joined)))
        if not self._target.is_billed:
            cost = "nothing: it runs on this machine"
        elif usd is None:
            cost = "unknown"
        else:
            cost = dollars(usd) if job.status.is_terminal else f"about {dollars(usd)} so far"
        facts.append(("cost", cost))
        return facts + [
            (name, marked_value(*(self._diverged.first(name) or (points[-1][1], ""))))
            for name, points in self._chosen()[:6]
        ]

    def _chosen(self) -> list[tuple[str, list[tuple[float, float]]]]:
        """Return the metrics; metrics with a known goal, losses and curves come first."""

        def rank(item: tuple[str, list[tuple[float, float]]]) -> tuple[bool, bool, bool]:
            return goal_of(item[0]) is None, "loss" not in item[0], len(item[1]) < 2

        return sorted(self._curves.items(), key=rank)

    def _charts(self) -> str:
        drawn = [(name, points) for name, points in self._chosen()[:MAX_CHARTS] if len(points) > 1]
        charts = "".join(sparkline(points, name[:MAX_NAME]) for name, points in drawn)
        return f'<div style="display:flex;flex-wrap:wrap;gap:8px">{charts}</div>' if charts else ""


def _clean(text: str) -> str:
    # A progress bar overwrites itself with carriage returns; only its last state is kept.
    return short(plain(ESCAPES.sub("", text.rstrip().rpartition("\r")[2])), MAX_CHARACTERS)


def _bar(phase: tuple[float, str]) -> str:
    share, sentence = phase
    return (
        '<div style="margin:4px 0"><div '
        'style="background:rgba(128,128,128,.25);border-radius:3px;height:8px">'
        f'<div style="background:#0072b2;border-radius:3px;height:8px;width:{100 * share:.1f}%">'
        "</div></div>"
        f'<span style="{SMALL}">{html.escape(sentence[:160])}</span></div>'
    )


def _usage(usage: Mapping[str, Mapping[str, float]]) -> str:
    if not usage:
        return ""
    names = list(dict.fromkeys(name for shares in usage.values() for name in shares))[:MAX_SHARES]
    rows = dict(sorted(usage.items(), key=lambda item: natural(item[0])))
    # One row with the mean: the dashboard shows each instance.
    if len(rows) > MAX_INSTANCES:
        known = {
            name: [shares[name] for shares in rows.values() if name in shares] for name in names
        }
        rows = {
            f"{len(rows)} instances, mean": {
                name: sum(each) / len(each) for name, each in known.items()
            }
        }
    body = "".join(
        (
            f"<tr><td>{html.escape(short(host))}"
            f"</td>{''.join(_share(shares.get(name)) for name in names)}</tr>"
        )
        for host, shares in rows.items()
    )
    head = "".join(f"<th>{html.escape(short(name.replace('_', ' ')))}</th>" for name in names)
    return f'<table style="font-size:90%"><tr><th></th>{head}</tr>{body}</table>'


def _share(share: float | None) -> str:
    if share is None:
        return "<td></td>"
    # psutil may report more than 100.
    width = min(100.0, max(0.0, share))
    # A gradient shows a bar and its figure in one cell, in any theme.
    bar = f"linear-gradient(to right,rgba(0,114,178,.35) {width:.0f}%,transparent {width:.0f}%)"
    return f'<td style="min-width:80px;background:{bar}">{share:.0f} %</td>'


MIN_PAUSE_S = 0.5
STALE_S = 30.0
"""Seconds after which a card is redrawn even if only the time and the cost have changed."""


class JobWatch(LiveCard):
    def __init__(self, job: Job, output: Output) -> None:
        super().__init__(job.name, output)
        self._job = job
        # Like following a log, watching a job submits its follow-up jobs.
        self._stream = JobStream(job.chain, send=True)
        self._card = JobCard(job.service.target)
        self._shown: tuple[object, ...] | None = None
        self._shown_s = 0.0
        self._look()
        self._begin()

    def _run(self) -> None:
        pauses = self._job.service.polling.pauses()
        while not self._stream.is_over and not self._stopping.wait(
            max(MIN_PAUSE_S, min(next(pauses), FOLLOW_S))
        ):
            if self._output.is_gone:
                return
            if self._look():
                # New lines reset the pauses.
                pauses = self._job.service.polling.pauses()

    def _look(self) -> bool:
        came = False
        trouble = ""
        try:
            for line in self._stream.new_lines(whole=False):
                came = True
                self._card.add(line.host, line.text, self._stream.found(line))
        except RaysmError as error:  # the network may come back; the card says so
            trouble = str(error)
        job = self._description()
        now_s = time.time()
        state = (job.status, job.secondary, job.message, job.reason, trouble)
        if came or state != self._shown or now_s - self._shown_s >= STALE_S:
            self._shown = state
            self._shown_s = now_s
            usd = _usd(self._job, job, now_s)
            self._output.show(
                self._card.html(job, usd, now_s, trouble), self._card.text(job, usd, now_s)
            )
        return came

    def finish(self) -> None:
        self.stop()
        self._look()

    def abandon(self) -> None:
        """Stop without waiting for the thread; the last card remains."""
        self._stopping.set()

    def _description(self) -> Description:
        chain = self._job.chain
        # The description that the log reader fetched, so that the card sends no request of its own.
        description = chain.last_known() or Description(
            name=chain.name, arn="", api=chain.api, status=Status.UNKNOWN
        )
        with contextlib.suppress(RaysmError):
            return replace(description, instances=self._job.instances)
        return description


def _usd(job: Job, description: Description, now_s: float) -> float | None:
    if not job.service.target.is_billed:
        return None
    with contextlib.suppress(RaysmError):
        if description.status.is_terminal:
            bill = job.cost()
            return None if bill is None else bill.usd
        so_far = usd_so_far(description, job.service.region, now_s)
        earlier = bill_of(job.chain.earlier(), job.service.region)
        if earlier is None or so_far is None:
            return so_far
        # If a part is unknown, so is the sum.
        return None if earlier.usd is None else earlier.usd + so_far
    return None


_latest: dict[str, tuple[object, JobWatch]] = {}
"""By the name of a chain's first job: its latest card, and the cell that showed it."""


def watch(job: Job, output: Output | None = None) -> JobWatch:
    """Show a card of ``job`` below the cell and redraw it until the job has ended.

    Later cells run meanwhile.

    Args:
        job: The job.
        output: Shows the cards; None is the notebook.

    Raises:
        InvalidRequest: This process is not a notebook.
    """
    output = output_here() if output is None else output
    watching = JobWatch(job, output)
    _latest[job.chain.first] = output.cell, watching
    return watching


@contextlib.contextmanager
def show_meanwhile(job: Job, output: Output | None = None) -> Iterator[None]:
    """Show a live card of ``job`` while a notebook's cell waits for the job in the block.

    Elsewhere show nothing. There is no second card while one is live, or if a cell waits again. An
    interrupted cell keeps the last card.
    """
    output = output or next((kind() for kind in NOTEBOOKS if kind.is_here()), Output())
    cell = output.cell
    earlier_cell, earlier = _latest.get(job.chain.first, (None, None))
    # What takes calls has a card of its own.
    if (
        cell is None
        or (earlier is not None and earlier.is_live)
        or job.done()
        or takes_calls(job.tags.get(WORKLOAD_TAG))
    ):
        yield
        return
    watching = watch(
        job, earlier._output if earlier is not None and earlier_cell == cell else output
    )
    try:
        yield
        watching.finish()
    finally:
        watching.abandon()
