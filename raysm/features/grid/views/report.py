"""The status of a grid as one HTML file without scripts, fonts or links, for mail and archives."""

import html
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice

from raysm.core.client.costs.bill import dollars
from raysm.core.request.durations import brief_duration
from raysm.features.grid.endings import brief, shortened
from raysm.features.grid.row import RowState
from raysm.features.grid.row_view import GridRow
from raysm.features.grid.snapshot import Snapshot
from raysm.features.grid.views.text import curves, interruptions_note, unpriced_note, usd_range

MAX_ROWS_SHOWN = 1_000
"""Most rows on the page: ten thousand would make a file of megabytes that a browser shows
slowly."""

STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.5em; margin: 0 } h2 { font-size: 1.1em; margin: 1.6em 0 .4em }
table { border-collapse: collapse; width: 100% }
th, td { text-align: right; padding: .25em .6em; border-bottom: 1px solid #8884 }
th:first-child, td:first-child, td.text, th.text { text-align: left } th { font-weight: 600 }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr));
  gap: 1em; margin: 1em 0 }
.figures div { border: 1px solid #8886; border-radius: 6px; padding: .6em .8em }
.figures b { display: block; font-size: 1.35em }
.scroll { overflow-x: auto } td { white-space: nowrap }
.rows td:first-child, .rows td:last-child {
  white-space: normal; overflow-wrap: anywhere; min-width: 7em }
.failed, .impossible { color: #c0392b } .done { color: #1e8449 }
footer { margin-top: 2em; opacity: .75 }
"""


def report_page(view: Snapshot, rows: Iterable[GridRow]) -> str:
    title = f"grid {html.escape(view.name)}"
    at = datetime.fromtimestamp(view.at_s, UTC)
    why = f" &middot; {html.escape(view.why)}" if view.why else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{title}: {html.escape(view.state)}</h1><p>{at:%Y-%m-%d %H:%M:%S} UTC{why}</p>"
        f"{_figures(view)}{curves(view)}{_regions(view)}{_troubles(view)}{_rows(view, rows)}"
        f"<footer>{html.escape(unpriced_note(view).strip())} Prices: "
        f"{html.escape(', '.join(view.prices) or 'none')}; "
        "on demand, also for spot capacity.</footer></body></html>\n"
    )


def _figures(view: Snapshot) -> str:
    done = view.states.get(RowState.DONE, 0)
    budget = "" if view.budget_usd is None else f", of {dollars(view.budget_usd)} allowed"
    gpus = sum(each.gpus for each in view.regions)
    pace = "-" if view.done_per_hour is None else f"{view.done_per_hour:,.1f}"
    figures = [
        *_rate(view),
        (f"{done:,} of {view.total:,}", "rows are done"),
        (f"{sum(each.instances for each in view.regions):,}", "instances now"),
        *([(f"{gpus:,}", "GPUs now")] if gpus else []),
        (pace, "rows an hour"),
        *([(brief_duration(view.left_s), "left, about")] if view.left and view.left_s else []),
        (dollars(view.money.spent_usd), f"spent{budget}"),
        *([] if view.planned_usd is None else [(usd_range(view.planned_usd), "planned")]),
        (dollars(view.money.wasted_usd), "wasted"),
        (dollars(view.money.saved_usd), "saved by spot"),
        *_interruptions(view),
    ]
    cells = "".join(f"<div><b>{value}</b>{label}</div>" for value, label in figures)
    return f'<div class="figures">{cells}</div>'


def _interruptions(view: Snapshot) -> list[tuple[str, str]]:
    if not view.interruptions:
        return []
    number, _, label = interruptions_note(view).partition(" ")
    return [(number, label)]


def _rate(view: Snapshot) -> list[tuple[str, str]]:
    if not view.rate_unit:
        return []
    # While nothing runs, show the highest rate.
    rate, when = (view.highest_rate, "at most") if view.rate is None else (view.rate, "now")
    return [(f"{rate:,.0f}", f"{html.escape(view.rate_unit)} {when}")]


def _regions(view: Snapshot) -> str:
    if not view.regions:
        return ""
    head = _row(
        ("region", "open", "ended", "interrupted", "instances", "rate", "spent", "wasted", "saved"),
        "th",
    )
    rows = [
        _row(
            (
                each.region,
                _counts(each.open),
                _counts(each.ended),
                f"{each.interruptions:,}",
                f"{each.instances:,}",
                "-" if each.rate is None else f"{each.rate:,.0f}",
                dollars(each.money.spent_usd),
                dollars(each.money.wasted_usd),
                dollars(each.money.saved_usd),
            )
        )
        for each in view.regions
    ]
    return f'<h2>Regions</h2><div class="scroll"><table>{head}{"".join(rows)}</table></div>'


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) or "-"


def _troubles(view: Snapshot) -> str:
    items = [
        f"{count:,} &times; {html.escape(brief(reason) or 'without a reason')}"
        for reason, count in view.reasons
    ]
    for block in view.blocks:
        until = brief_duration(block.until_s - view.at_s)
        items.append(
            f"{html.escape(block.place)} gets no job for {until}: {html.escape(block.reason)}"
        )
    closed = [each for each in view.regions if each.closed_until_s is not None]
    items += [
        f"{html.escape(each.region)} takes no job: {html.escape(each.reason)}" for each in closed
    ]
    return (
        f"<h2>What went wrong</h2><ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"
        if items
        else ""
    )


def _rows(view: Snapshot, rows: Iterable[GridRow]) -> str:
    shown = list(islice(rows, MAX_ROWS_SHOWN))
    more = view.total - len(shown)
    rest = f"<p>and {more:,} more: raysm grid rows {html.escape(view.name)}</p>" if more > 0 else ""
    head = (
        '<tr><th>row</th><th class="text">state</th><th class="text">region</th>'
        '<th class="text">type</th>'
        '<th>tries</th><th>rate</th><th>cost</th><th class="text">why</th></tr>'
    )
    lines = "".join(map(_line, shown))
    return (
        f'<h2>Rows</h2><div class="scroll"><table class="rows">{head}{lines}</table></div>{rest}'
        if shown
        else ""
    )


def _line(row: GridRow) -> str:
    rate = "-" if row.rate is None else f"{row.rate:,.0f}"
    cost = "-" if row.usd is None else dollars(row.usd)
    return (
        f'<tr><td>{html.escape(row.key)}</td><td class="text {row.state}">{row.state}</td>'
        f'<td class="text">{row.region or "-"}</td>'
        f'<td class="text">{html.escape(row.instance_type or "-")}</td>'
        # Shorten before escaping: half of an entity would be shown as text.
        f"<td>{row.attempts}</td><td>{rate}</td><td>{cost}</td>"
        f'<td class="text">{html.escape(shortened(brief(row.reason), 300))}</td></tr>'
    )


def _row(cells: Iterable[str], tag: str = "td") -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"
