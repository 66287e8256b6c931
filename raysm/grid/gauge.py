"""How much work all rows do in a second together: the jobs' own metric flows in, a rate a minute flows out.

What a program reports is found by the service in its log; once a minute each region is asked for the last value of all
jobs that run there, five hundred to a call. Logs of a thousand jobs cannot be read, and Describe has a rate to keep.
"""

import functools
import math
import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from raysm.client.job.description import Description
from raysm.grid.outside import Outside, Silence
from raysm.grid.region import RATES_PAGE, Region
from raysm.grid.store import Store
from raysm.request import MetricDefinition

__all__ = ["FREE_S", "GAUGE_S", "Gauge", "definition", "keep_last", "unit"]

GAUGE_S = 60.0
"""CloudWatch keeps a value a minute, and each that is asked for is billed."""

FREE_S = 5.0
"""Where nothing is billed: the embedded SageMaker passes values on every few seconds, and its jobs may be as short."""

MOST_POINTS = 1_000
"""Of the curve; when there are more, every second one goes, so that a grid of a month is as quick to draw."""


def definition(metric: str) -> MetricDefinition:
    """Return what lets the service find the metric among what ``raysm.report`` writes."""
    # The last of a line: an event is one JSON object a line, with its name before its value.
    return MetricDefinition(name=metric, regex=rf'"name": "{re.escape(metric)}", "value": (-?[0-9.eE+-]+)')


def unit(metric: str) -> str:
    """Return the metric's unit as people write it: ``images/s`` of ``images_per_s``."""
    name, per, second = metric.rpartition("_per_")
    return f"{name}/{second}" if per else metric


class Gauge:
    """The rates of one grid."""

    def __init__(self, store: Store, outside: Outside, *, pause_s: float = GAUGE_S) -> None:
        """Ask for the first ones at once."""
        self._store = store
        self._outside = outside
        self._pause_s = pause_s
        self._due_s = float("-inf")

    def step(self, now: float) -> None:
        """Ask every region whose jobs run, if the last time is long enough ago."""
        metric = self._store.grid().rules.rate
        # The clock may have been set back: none is due later than a pause from now.
        if metric is None or now < self._due_s <= now + self._pause_s:
            return
        self._due_s = now + self._pause_s
        values: dict[str, float] = {}
        running = self._store.running()

        def ask_all(region: str, jobs: list[tuple[str, str]]) -> None:
            values.update(self._of(region, [name for _, name in jobs], metric, now))

        self._outside.side_by_side(running, itemgetter(0), ask_all)
        if running:
            with self._store.database.transaction("rates"):
                keep_rates(self._store, values, now)

    def _of(self, region: str, names: list[str], metric: str, now: float) -> dict[str, float]:
        values: dict[str, float] = {}
        for begin in range(0, len(names), RATES_PAGE):
            call = functools.partial(_rates, names[begin : begin + RATES_PAGE], metric)
            try:
                values |= self._outside.ask(region, "metrics", now, call)
            except Silence:
                # It is for people to look at: the jobs do their work whether it is known or not.
                break
        return values


def _rates(names: Sequence[str], metric: str, region: Region) -> Mapping[str, float]:
    return region.rates(names, metric)


def keep_rates(store: Store, values: dict[str, float], now: float) -> None:
    """Keep the rate of each job, and that of all together, within a transaction."""
    execute = store.database.connection.execute
    values = {name: value for name, value in values.items() if math.isfinite(value)}
    for name, value in values.items():
        execute("INSERT OR REPLACE INTO rate VALUES (?, ?, ?)", (name, value, now))
    execute("INSERT OR REPLACE INTO rate_history VALUES (?, ?, ?)", (now, sum(values.values()), len(values)))
    if execute("SELECT count(*) FROM rate_history").fetchone()[0] > MOST_POINTS:
        execute(
            "DELETE FROM rate_history WHERE at_s IN (SELECT at_s FROM "
            "(SELECT at_s, row_number() OVER (ORDER BY at_s) AS number FROM rate_history) WHERE number % 2 = 0)"
        )


def keep_last(store: Store, name: str, description: Description, now: float) -> None:
    """Keep the last rate of a job that has ended, within a transaction: what Describe says of its metrics."""
    # First: most grids measure nothing, and each of their ends would read the grid for it.
    metrics: Sequence[Mapping[str, Any]] = description.answer.get("FinalMetricDataList", ())
    metric = store.grid().rules.rate if metrics else None
    # A program that divides by no time reports NaN: that is no rate, and the end of its job is kept all the same.
    final = [item for item in metrics if item["MetricName"] == metric and math.isfinite(item["Value"])]
    if final:
        values = (name, float(final[-1]["Value"]), now)
        store.database.connection.execute("INSERT OR REPLACE INTO rate VALUES (?, ?, ?)", values)
