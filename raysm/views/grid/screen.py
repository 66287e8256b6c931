"""A grid on a terminal: a Snapshot flows in, lines flow out. Pure; whoever shows them draws them again and again."""

from raysm.client.costs.bill import dollars
from raysm.contract.names import counted
from raysm.grid.endings import brief
from raysm.grid.snapshot import RegionView, Snapshot
from raysm.views.grid.plan_text import usd_range

__all__ = ["duration", "interruptions_note", "screen_lines", "unpriced_note"]

BAR = 40
"""Characters of the bar of all rows."""

SHADES = {"done": "█", "skipped": "█", "placed": "▒", "failed": "x", "stopped": "-", "impossible": "x", "waiting": "·"}
"""Of the bar, by the state of a task."""

LEVELS = " ▁▂▃▄▅▆▇█"

HEADER = (
    "region",
    "waiting",
    "running",
    "other",
    "ended",
    "interrupted",
    "instances",
    "GPUs",
    "rate",
    "spent",
    "wasted",
    "saved",
)

NOTHING = ("0", "-", dollars(0.0))
"""What a column is left out for that has nothing else: with all of them a line is longer than a terminal is wide."""

RUNNING, PENDING = "running", ("sent", "pending")


def screen_lines(view: Snapshot) -> list[str]:
    """Return one screen of a grid."""
    lines = [
        f"grid {view.name}: {view.state}{f' ({view.why})' if view.why else ''}",
        f"{_bar(view)}  {_states(view)}",
        "",
        *_rate(view),
        *_gpus(view),
        *_costs(view),
        *_interruptions(view),
        f"pace    {_pace(view)}",
    ]
    if view.regions:
        lines += ["", *_table(view)]
    lines += [f"{each.region} takes no job: {each.reason}" for each in view.regions if each.closed_until_s is not None]
    for block in view.blocks:
        lines.append(f"blocked {block.place}, {duration(block.until_s - view.at_s)} more: {block.reason}")
    if view.reasons:
        lines += ["", *(f"{count:>6,} x {brief(reason) or 'without a reason'}" for reason, count in view.reasons)]
    if view.prices:
        lines += ["", f"prices: {', '.join(view.prices)}"]
    return lines


def _costs(view: Snapshot) -> list[str]:
    """Return what the grid costs; one line where no price is known, as on the embedded SageMaker."""
    if not view.prices:
        return ["costs   unknown: no price of its instances is known"]
    note = unpriced_note(view)
    return [
        *([] if view.planned_usd is None else [f"planned {usd_range(view.planned_usd)}"]),
        f"spent   {dollars(view.money.spent_usd)}{_budget(view)}",
        f"open    at most {dollars(view.money.at_stake_usd)} more, if every open job runs to its limit",
        f"wasted  {dollars(view.money.wasted_usd)}   saved by spot {dollars(view.money.saved_usd)}",
        *([note] if note else []),
    ]


def unpriced_note(view: Snapshot) -> str:
    """Return what is to be said where the dollars are not all; nothing where they are."""
    number = view.money.unpriced
    return f"        the cost of {counted(number, 'job')} is unknown and not in these sums" if number else ""


def duration(seconds: float) -> str:
    """Return a time for people."""
    if seconds < 90:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


def _rate(view: Snapshot) -> list[str]:
    if not view.rate_unit:
        return []
    most = view.highest_rate
    if view.rate is not None:
        now = f"{view.rate:,.0f} {view.rate_unit} combined, at most {max(most, view.rate):,.0f} so far"
    else:
        # While nothing runs, what was reached is the figure.
        now = (
            f"at most {most:,.0f} {view.rate_unit} combined"
            if most
            else f"no job has reported any {view.rate_unit} yet"
        )
    return [f"rate    {now}  {_spark(view)}".rstrip()]


def _gpus(view: Snapshot) -> list[str]:
    gpus, regions = sum(each.gpus for each in view.regions), sum(each.gpus > 0 for each in view.regions)
    return [f"GPUs    {gpus:,} in {regions:,} regions" if regions > 1 else f"GPUs    {gpus:,}"] if gpus else []


def _interruptions(view: Snapshot) -> list[str]:
    return [f"spot    {interruptions_note(view)}"] if view.interruptions else []


def interruptions_note(view: Snapshot) -> str:
    """Return what interruptions have cost, as far as it is known without the programs."""
    number = view.interruptions
    times = "1 interruption" if number == 1 else f"{number:,} interruptions"
    return f"{times}, at most {dollars(view.money.again_usd)} of work done again"


def _spark(view: Snapshot) -> str:
    """Return the last values of the rate as a curve of block characters."""
    values = [value for _, value in view.rates[-BAR:]]
    most = max(values, default=0.0)
    return "".join(LEVELS[round(value / most * (len(LEVELS) - 1))] for value in values) if most else ""


def _bar(view: Snapshot) -> str:
    total = max(1, view.total)
    # Of 1,000 rows a single failed one is seen, too.
    cells = {state: max(1, round(BAR * view.states[state] / total)) for state in SHADES if view.states.get(state)}
    # What that is too much is taken from where it is seen least.
    while sum(cells.values()) > BAR:
        cells[max(cells, key=lambda state: cells[state])] -= 1
    return "".join(SHADES[state] * number for state, number in cells.items()).ljust(BAR, "·")


def _states(view: Snapshot) -> str:
    parts = [f"{view.states[state]:,} {state}" for state in SHADES if view.states.get(state)]
    return f"{counted(view.total, 'row')}: {', '.join(parts)}"


def _budget(view: Snapshot) -> str:
    return "" if view.budget_usd is None else f" of {dollars(view.budget_usd)}"


def _pace(view: Snapshot) -> str:
    if view.done_per_hour is None:
        return "no row is done yet"
    left = "" if not view.left or view.left_s is None else f"; about {duration(view.left_s)} left"
    return f"{view.done_per_hour:,.1f} rows an hour{left}"


def _table(view: Snapshot) -> list[str]:
    columns = zip(HEADER, *map(_cells, view.regions), strict=True)
    filled = [column for column in columns if any(cell not in NOTHING for cell in column[1:])]
    table = list(zip(*filled, strict=True))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]


def _cells(each: RegionView) -> tuple[str, ...]:
    pending = sum(each.open.get(state, 0) for state in PENDING)
    running = each.open.get(RUNNING, 0)
    ended = ", ".join(f"{count:,} {name}" for name, count in sorted(each.ended.items()))
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
