"""Plans and snapshots of grids as lines for a terminal, and as HTML for a notebook."""

import html
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from raysm.core.client.costs.bill import dollars
from raysm.core.client.views.sparkline import sparkline
from raysm.core.protocol.names import counted, listed
from raysm.core.protocol.terminal_text import visible
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.core.request.durations import brief_duration
from raysm.features.grid.endings import EndingName, brief
from raysm.features.grid.plan import GridPlan, PlannedPlace
from raysm.features.grid.row import RowState
from raysm.features.grid.snapshot import RegionView, Snapshot

# -- plans

MAX_SHOWN = 8
"""Impossible rows named per cause; the JSON has all."""

UNKNOWN = "unknown"

PLACE_HEADER = ("region", "type", "market", "rows", "instances", "USD/h", "price", "USD", "hours")
TEXTS = ("region", "type", "market", "price")


def plan_lines(plan: GridPlan) -> list[str]:
    lines = [f"grid {plan.name}: {counted(len(plan.assigned), 'row')}, nothing is sent", ""]
    if plan.places:
        lines += [
            *_aligned([PLACE_HEADER, *map(_place_cells, plan.places)], (UNKNOWN, "-"), TEXTS),
            "",
        ]
    usd = usd_range(plan.usd)
    if plan.usd is None and (
        known := [place.usd[0] for place in plan.places if place.usd is not None]
    ):
        usd = f"at least {dollars(sum(known))}; the rest is {UNKNOWN}"
    if plan.places and all(each.place.instance_type == LOCAL_TYPE for each in plan.places):
        usd = "nothing: the jobs run on this machine"
    moved = f", {dollars(plan.transfer_usd)} of it for moving data" if plan.transfer_usd else ""
    if plan.transfer_usd is None:
        moved = "; the cost of moving data is unknown: give their size in the column input_gb"
    lines += [
        f"costs   {usd}{moved}",
        *(
            [f"at most {dollars(plan.most_usd)}, if every row ran to its time limit"]
            if plan.most_usd
            else []
        ),
        (
            "takes   "
            f"{UNKNOWN if plan.hours is None else f'{plan.hours:,.1f} h with the known quotas'}"
        ),
    ]
    if plan.impossible:
        lines += ["", f"{counted(len(plan.impossible), 'row')} can run nowhere:", *_reasons(plan)]
    return lines + ([""] if plan.notes else []) + [f"note: {note}" for note in plan.notes]


def usd_range(usd: tuple[float, float] | None) -> str:
    if usd is None:
        return UNKNOWN
    low, high = map(dollars, usd)
    return low if low == high else f"{low.removesuffix(' USD')} to {high}"


def _place_cells(each: PlannedPlace) -> tuple[str, ...]:
    return (
        each.place.region,
        each.place.instance_type,
        "spot" if each.place.spot else "on demand",
        f"{each.rows:,}",
        f"{each.instances:,}",
        UNKNOWN if each.usd_per_hour is None else f"{each.usd_per_hour:,.4g}",
        f"{each.price_as_of} ({each.price_version})" if each.price_version else "-",
        usd_range(each.usd),
        UNKNOWN if each.hours is None else f"{each.hours:,.1f}",
    )


def _reasons(plan: GridPlan) -> Iterator[str]:
    # Thousands of rows may have the same cause, which is shown once.
    causes: dict[str, list[str]] = {}
    for each in plan.impossible:
        common = Counter(each.reasons.values()).most_common()
        text = "; ".join(
            why if times == len(each.reasons) else f"{why} ({times} places)"
            for why, times in common
        )
        causes.setdefault(text or "the grid has no places", []).append(each.row.key)
    for text, keys in causes.items():
        yield f"  {listed(keys, MAX_SHOWN)}: {text}"


def _aligned(
    table: Sequence[tuple[str, ...]], nothing: Sequence[str], texts: Sequence[str]
) -> list[str]:
    """Return a table with a header as lines, without columns whose cells are all ``nothing``."""
    columns = [column for column in zip(*table, strict=True) if set(column[1:]) - set(nothing)]
    widths = [max(map(len, column)) for column in columns]
    sides = [str.ljust if column[0] in texts else str.rjust for column in columns]
    lines = (zip(sides, row, widths, strict=True) for row in zip(*columns, strict=True))
    return ["  ".join(side(cell, width) for side, cell, width in line).rstrip() for line in lines]


# -- snapshots

BAR = 40
SHADES = {
    RowState.DONE: "█",
    RowState.PLACED: "▒",
    RowState.FAILED: "x",
    RowState.STOPPED: "-",
    RowState.IMPOSSIBLE: "x",
    RowState.WAITING: "·",
}
LEVELS = " ▁▂▃▄▅▆▇█"

REGION_HEADER = (
    "region", "waiting", "running", "other", "jobs ended", "interrupted", "instances", "GPUs",
    "rate", "spent", "wasted", "saved",
)  # fmt: skip
ENDED: dict[str, str] = {EndingName.OK: "done", EndingName.ERROR: "failed"}


def screen_lines(view: Snapshot) -> list[str]:
    lines = [
        f"grid {view.name}: {view.state}{f' ({view.why})' if view.why else ''}",
        f"{_bar(view)}  {_states(view)}",
        "",
        *_rate(view),
        *_gpus(view),
        *_costs(view),
        *([f"spot    {interruptions_note(view)}"] if view.interruptions else []),
        f"pace    {_pace(view)}",
    ]
    if view.regions:
        table = [REGION_HEADER, *map(_region_cells, view.regions)]
        # Leave out empty columns: with all, a line is wider than a terminal.
        lines += ["", *_aligned(table, ("0", "-", dollars(0.0)), ("region",))]
    lines += [
        f"{each.region} takes no job: {each.reason}"
        for each in view.regions
        if each.closed_until_s is not None
    ]
    for block in view.blocks:
        lines.append(
            f"blocked {block.place}, "
            f"{brief_duration(block.until_s - view.at_s)} more: {block.reason}"
        )
    if view.reasons:
        lines += [
            "",
            *(
                f"{count:>6,} x {brief(reason) or 'without a reason'}"
                for reason, count in view.reasons
            ),
        ]
    if view.prices:
        lines += ["", f"prices: {', '.join(view.prices)}"]
    return lines


def _costs(view: Snapshot) -> list[str]:
    if not view.prices:
        if not view.is_free:
            return [f"costs   {UNKNOWN}: no price of the jobs' instances is known"]
        return [f"costs   nothing{': the jobs run on this machine' if view.regions else ' yet'}"]
    note = unpriced_note(view)
    budget = "" if view.budget_usd is None else f" of {dollars(view.budget_usd)}"
    return [
        *([] if view.planned_usd is None else [f"planned {usd_range(view.planned_usd)}"]),
        f"spent   {dollars(view.money.spent_usd)}{budget}",
        (
            f"open    at most {dollars(view.money.at_stake_usd)} more, "
            "if every open job runs to its limit"
        ),
        f"wasted  {dollars(view.money.wasted_usd)}   saved by spot {dollars(view.money.saved_usd)}",
        *([f"        {note}"] if note else []),
    ]


def unpriced_note(view: Snapshot) -> str:
    number = view.money.unpriced
    return (
        f"the cost of {counted(number, 'job')} is unknown and not in these sums" if number else ""
    )


def _rate(view: Snapshot) -> list[str]:
    if not view.rate_unit:
        return []
    most = view.highest_rate
    if view.rate is not None:
        now = (
            f"{view.rate:,.0f} {view.rate_unit} combined, "
            f"at most {max(most, view.rate):,.0f} so far"
        )
    elif most:
        now = f"at most {most:,.0f} {view.rate_unit} combined"
    else:
        now = f"no job has reported any {view.rate_unit} yet"
    # The last values as a curve of block characters.
    values = [value for _, value in view.rates[-BAR:]]
    top = max(values, default=0.0)
    spark = (
        "".join(LEVELS[round(value / top * (len(LEVELS) - 1))] for value in values) if top else ""
    )
    return [f"rate    {now}  {spark}".rstrip()]


def _gpus(view: Snapshot) -> list[str]:
    gpus = sum(each.gpus for each in view.regions)
    regions = sum(each.gpus > 0 for each in view.regions)
    if not gpus:
        return []
    where = f" in {regions:,} regions" if regions > 1 else ""
    return [f"GPUs    {gpus:,}{where}"]


def interruptions_note(view: Snapshot) -> str:
    return (
        f"{counted(view.interruptions, 'interruption')}, "
        f"at most {dollars(view.money.again_usd)} of work done again"
    )


def _bar(view: Snapshot) -> str:
    total = max(1, view.total)
    # At least one character per state: a single failed row of 1,000 is visible.
    cells = {
        state: max(1, round(BAR * view.states[state] / total))
        for state in SHADES
        if view.states.get(state)
    }
    # Take surplus characters from the longest part.
    while sum(cells.values()) > BAR:
        cells[max(cells, key=lambda state: cells[state])] -= 1
    return "".join(SHADES[state] * number for state, number in cells.items()).ljust(BAR, "·")


def _states(view: Snapshot) -> str:
    parts = [f"{view.states[state]:,} {state}" for state in SHADES if view.states.get(state)]
    return f"{counted(view.total, 'row')}: {', '.join(parts)}"


def _pace(view: Snapshot) -> str:
    if view.done_per_hour is None:
        return "no row is done yet"
    pace = f"{view.done_per_hour:,.1f} rows an hour"
    if view.left and view.left_s is not None:
        pace += f"; about {brief_duration(view.left_s)} left"
    return pace


def _region_cells(each: RegionView) -> tuple[str, ...]:
    pending = sum(each.open.get(state, 0) for state in ("sent", "pending"))
    running = each.open.get("running", 0)
    ended = ", ".join(
        f"{count:,} {ENDED.get(name, name)}" for name, count in sorted(each.ended.items())
    )
    return (
        each.region,
        f"{pending:,}",
        f"{running:,}",
        f"{sum(each.open.values()) - pending - running:,}",
        ended or "-",
        f"{each.interruptions:,}",
        f"{each.instances:,}",
        f"{each.gpus:,}",
        "-" if each.rate is None else f"{each.rate:,.0f}",
        dollars(each.money.spent_usd),
        dollars(each.money.wasted_usd),
        dollars(each.money.saved_usd),
    )


# -- for notebooks


def curves(view: Snapshot) -> str:
    rate = f"{view.rate_unit}, all jobs together"
    return _curve(view, view.done, "rows that are done") + _curve(view, view.rates, rate)


def _curve(view: Snapshot, values: Sequence[tuple[float, float]], title: str) -> str:
    if len(values) < 2:
        return ""
    # Both curves begin at the creation of the grid.
    points = [(view.created_s, 0.0), *((at_s, float(value)) for at_s, value in values)]
    span = brief_duration(values[-1][0] - view.created_s)
    svg = sparkline(points, title, width=1000, height=140, note=f"{span} since the grid was made")
    return f'<div class="scroll">{svg}</div>'


class ShownPlan(GridPlan):
    __slots__ = ()

    def __str__(self) -> str:
        return visible("\n".join(plan_lines(self)))

    def _repr_html_(self) -> str:
        return _preformatted(str(self))


class ShownSnapshot(Snapshot):
    __slots__ = ()

    def __str__(self) -> str:
        return visible("\n".join(screen_lines(self)))

    def _repr_html_(self) -> str:
        return _preformatted(str(self)) + curves(self)


def shown_plan(plan: GridPlan) -> ShownPlan:
    return ShownPlan(**_values(plan))


def shown_snapshot(view: Snapshot) -> ShownSnapshot:
    return ShownSnapshot(**_values(view))


def _values(value: Any) -> dict[str, Any]:
    # Not asdict, which would convert nested values to dictionaries.
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _preformatted(text: str) -> str:
    # white-space:pre keeps the columns aligned; otherwise JupyterLab breaks lines.
    style = "line-height:1.2;font-size:12px;white-space:pre;overflow-x:auto"
    return f'<pre style="{style}">{html.escape(text)}</pre>'
