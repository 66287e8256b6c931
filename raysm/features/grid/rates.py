"""The rates that the programs of a grid's jobs report, read from CloudWatch and from Describe."""

import contextlib
import functools
import math
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from raysm.core.client.job.description import Description
from raysm.features.grid.region import RATES_PAGE, RegionApi, RegionUnavailable
from raysm.features.grid.store.store import Store

GAUGE_S = 60.0
"""Seconds between two readings of the jobs' rates, each of which is billed."""

FREE_S = 5.0
"""The same where readings cost nothing: jobs of the embedded SageMaker may be this short."""


class Gauge:
    """Reads the rates of all running jobs from CloudWatch, 500 jobs per call, and adds them up."""

    def __init__(self, store: Store, api: RegionApi, *, pause_s: float = GAUGE_S) -> None:
        self._store = store
        self._api = api
        self._pause_s = pause_s
        self._due_s = float("-inf")

    def step(self, now: float) -> None:
        metric = self._store.grid().rules.rate
        # The second condition is for a clock that was set back.
        if metric is None or now < self._due_s <= now + self._pause_s:
            return
        self._due_s = now + self._pause_s
        values: dict[str, float] = {}

        def ask_all(region: str, jobs: list[tuple[str, str]]) -> None:
            # Rates are only displayed, so a region that does not answer is skipped.
            with contextlib.suppress(RegionUnavailable):
                for begin in range(0, len(jobs), RATES_PAGE):
                    names = [name for _, name in jobs[begin : begin + RATES_PAGE]]
                    call = functools.partial(
                        lambda names, region: region.rates(names, metric), names
                    )
                    values.update(self._api.call(region, "metrics", now, call))

        running = self._store.attempts.running_jobs()
        self._api.for_each_region(running, itemgetter(0), ask_all)
        if running:
            with self._store.database.transaction("rates"):
                # A program that divides by a time of 0 reports NaN.
                self._store.rates.keep_all(
                    {name: each for name, each in values.items() if math.isfinite(each)}, now
                )


def keep_last_rate(store: Store, name: str, description: Description, now: float) -> None:
    """Store the last rate of a job that has ended, from Describe's answer, within a transaction."""
    metrics: Sequence[Mapping[str, Any]] = description.answer.get("FinalMetricDataList", ())
    # Most jobs have no metrics: do not read the grid for them.
    metric = store.grid().rules.rate if metrics else None
    final = [
        item for item in metrics if item["MetricName"] == metric and math.isfinite(item["Value"])
    ]
    if final:
        store.rates.keep(name, float(final[-1]["Value"]), now)
