"""The plan of a grid as lines for a terminal: a GridPlan flows in, lines flow out. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence

from raysm.client.costs.bill import dollars
from raysm.contract.names import counted
from raysm.grid.plan import GridPlan, PlannedPlace
from raysm.request.cluster import LOCAL_TYPE

__all__ = ["plan_lines", "usd_range"]

MOST_SHOWN = 8
"""Rows without a place that are named; of more, it says how many: all of them are in the JSON."""

UNKNOWN = "unknown"

HEADER = ("region", "type", "market", "rows", "instances", "USD/h", "price", "USD", "hours")

TEXTS = ("region", "type", "market", "price")
"""Columns that hold text."""


def plan_lines(plan: GridPlan) -> list[str]:
    """Return the plan for people."""
    lines = [f"grid {plan.name}: {counted(len(plan.assigned), 'row')}, nothing is sent", ""]
    if plan.places:
        lines += _aligned(_filled([HEADER, *map(_cells, plan.places)]))
        lines.append("")
    lines += [
        f"costs   {_usd(plan)}{_moved(plan)}",
        *([] if plan.most_usd is None else [f"at most {dollars(plan.most_usd)}, if every row ran to its time limit"]),
        f"takes   {UNKNOWN if plan.hours is None else f'{plan.hours:,.1f} h'} with the quotas that are known",
    ]
    if plan.impossible:
        lines += ["", f"{counted(len(plan.impossible), 'row')} can run nowhere:", *_reasons(plan)]
    return lines + ([""] if plan.notes else []) + [f"note: {note}" for note in plan.notes]


def _usd(plan: GridPlan) -> str:
    if plan.places and all(each.place.instance_type == LOCAL_TYPE for each in plan.places):
        return "nothing: the jobs run on this machine"
    return usd_range(plan.usd)


def usd_range(usd: tuple[float, float] | None) -> str:
    """Return dollars from best to worst; what would be shown alike is shown once."""
    if usd is None:
        return UNKNOWN
    low, high = map(dollars, usd)
    # The unit once: in the report both stand in a box of a few words.
    return low if low == high else f"{low.removesuffix(' USD')} to {high}"


def _moved(plan: GridPlan) -> str:
    if plan.transfer_usd is None:
        return "; what moving the data costs is unknown: give their size, the column input_gb"
    return f", {dollars(plan.transfer_usd)} of it for moving data" if plan.transfer_usd else ""


def _cells(each: PlannedPlace) -> tuple[str, ...]:
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


def _filled(table: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Leave out the columns in which nothing is known: without prices ``unknown`` would stand three times."""
    columns = [column for column in zip(*table, strict=True) if set(column[1:]) - {UNKNOWN, "-"}]
    return list(zip(*columns, strict=True))


def _reasons(plan: GridPlan) -> Iterator[str]:
    # Of one cause there may be thousands of rows: each is told once, with the keys of a few.
    causes: dict[str, list[str]] = {}
    for each in plan.impossible:
        common = Counter(each.reasons.values()).most_common()
        text = "; ".join(why if times == len(each.reasons) else f"{why} ({times} places)" for why, times in common)
        causes.setdefault(text or "no place is given", []).append(each.task.key)
    for text, keys in causes.items():
        more = f" and {len(keys) - MOST_SHOWN:,} more" if len(keys) > MOST_SHOWN else ""
        yield f"  {', '.join(keys[:MOST_SHOWN])}{more}: {text}"


def _aligned(table: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    # Texts to the left, numbers to the right, as a reader compares them.
    return [
        "  ".join(
            cell.ljust(width) if name in TEXTS else cell.rjust(width)
            for name, cell, width in zip(table[0], row, widths, strict=True)
        ).rstrip()
        for row in table
    ]
