"""A job's card as HTML. Pure: what is known of the job flows in, text flows out, in which all it says is escaped.

No style sheet, script, link or image, so that the same bytes are shown by every notebook, changing nothing beside them,
and are still there when the notebook is opened without a kernel. Colors are those of the text around, or half
transparent: the card is dark on light pages, and light on dark ones. At most 30 kB, however much a job says.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from raysm.client.costs.bill import dollars
from raysm.client.experiments.curves import goal_of
from raysm.client.job import text as job_repr
from raysm.client.job.description import Description
from raysm.client.logs.rendering import metric_value
from raysm.request import Target
from raysm.views.card.watched import CONTROL, Seen
from raysm.views.sparkline import sparkline

__all__ = ["FRAME", "MOST_BYTES", "SMALL", "TEXT", "Moment", "card", "facts_html", "words"]

MOST_BYTES = 30_000
"""Of one card, UTF-8: twice a second, it has to fit through a slow line."""

MOST_CHARTS = 2
# More of each than a screen shows makes a card that jumps while it is watched.
MOST_PHASES = 6
MOST_INSTANCES = 8
MOST_SHARES = 4
MOST_NAME = 60
"""Charts, phases, instances and their shares, and characters of a name, that a card shows."""

FRAME = "border:1px solid rgba(128,128,128,.4);border-radius:6px;padding:10px 14px;max-width:860px;line-height:1.5"
SMALL = "opacity:.75;font-size:90%"
TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;margin:6px 0;font-size:85%"


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """All that a card shows."""

    job: Description
    """How the job is."""
    target: Target
    """Where it is."""
    seen: Seen
    """What its log has told."""
    usd: float | None
    """What it has cost so far; None where that is not known."""
    now_s: float
    """When, in seconds since the epoch."""
    trouble: str = ""
    """Why the service cannot be asked just now; empty where it can."""
    facts: tuple[tuple[str, str], ...] = ()
    """What else is to be shown: labels with their texts."""


def card(moment: Moment) -> str:
    """Return a card of at most ``MOST_BYTES``."""
    # A log may be of characters of four bytes each: the charts can be left out first, and the state last.
    shorter = replace(moment, seen=replace(moment.seen, phases=(), usage=()))
    for shown, charts in ((moment, MOST_CHARTS), (moment, 0), (shorter, 0)):
        # A log may hold the codes by which terminals draw: in HTML they are forbidden.
        drawn = CONTROL.sub("", _card(shown, charts))
        if len(drawn.encode()) <= MOST_BYTES:
            break
    return drawn


def words(moment: Moment) -> str:
    """Return the card in a few lines of text, for where no HTML is shown."""
    phases = [sentence for _, _, sentence in moment.seen.phases[-MOST_PHASES:]]
    facts = [f"{label}: {text}" for label, text in _facts(moment)]
    return "\n".join([job_repr.text(moment.job, moment.target, moment.now_s), *facts, *phases])


def _card(moment: Moment, charts: int) -> str:
    parts = [
        # By the card's own time, which it names below: it may be drawn again much later, or from a clock that jumped.
        job_repr.html(moment.job, moment.target, moment.now_s),
        facts_html(_facts(moment)),
        *(_bar(*phase) for phase in moment.seen.phases[-MOST_PHASES:]),
        _charts(moment.seen, charts),
        _usage(moment.seen),
        _log(moment.seen.lines),
        _in_code(moment.job.name),
        f'<div style="{SMALL}">{_as_of(moment)}</div>',
    ]
    return f'<div style="{FRAME}">{"".join(parts)}</div>'


def _facts(moment: Moment) -> list[tuple[str, str]]:
    seen, job = moment.seen, moment.job
    # Of one that has ended the status says it.
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
    """Return labels with their texts, side by side."""
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
    """Return the metrics to show: those that are known to get better, with curves, first."""
    curves = [(name, points) for name, points in seen.curves if points]
    # Stable: among equals, the order in which the job told them.
    curves.sort(key=lambda curve: (goal_of(curve[0]) is None, "loss" not in curve[0], len(curve[1]) < 2))
    return curves[:most]


def _charts(seen: Seen, most: int) -> str:
    drawn = [(name, points) for name, points in _chosen(seen, most) if len(points) > 1]
    charts = [sparkline(points, name[:MOST_NAME]) for name, points in drawn]
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px">{"".join(charts)}</div>' if charts else ""


def _usage(seen: Seen) -> str:
    if not seen.usage:
        return ""
    names = list(dict.fromkeys(name for _, shares in seen.usage for name, _ in shares))[:MOST_SHARES]
    rows = [(host, dict(shares)) for host, shares in seen.usage]
    # One row for all: which of a hundred stands out is the dashboard's to show.
    if len(rows) > MOST_INSTANCES:
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
    # psutil says above 100 where cores were added, and a share is a share.
    width = min(100.0, max(0.0, share))
    # A gradient: a bar and its figure in one cell, in any theme.
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
    # A card stays in a notebook for years: when it was true is part of it.
    at = datetime.fromtimestamp(moment.now_s, UTC)
    trouble = f": the service cannot be asked just now: {moment.trouble[:300]}" if moment.trouble else ""
    return html.escape(f"as of {at:%Y-%m-%d %H:%M:%S} UTC{trouble}")


def _text(name: str) -> str:
    return html.escape(name if len(name) <= MOST_NAME else name[: MOST_NAME - 1] + "…")
