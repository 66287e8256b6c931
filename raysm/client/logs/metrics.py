"""The metrics of a job: those that the service finds by metric definitions, and a list of all to work with."""

import fnmatch
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from raysm.client.job.description import Description
from raysm.client.logs.rendering import metric_value
from raysm.client.service import Service
from raysm.contract.events import Metric
from raysm.errors import MissingDependency

__all__ = ["FoundByService", "Metrics"]

PERIOD_S = 60
"""CloudWatch keeps one value for each minute, and no finer."""

MAX_POINTS = 1440
"""CloudWatch returns at most so many values of a series."""

SETTLED_S = 900.0
"""So many seconds after a job's end its series have all their values."""

MOST_SHOWN = 12
"""Metrics of which the repr says something."""


class Metrics(list[Metric]):
    """The values of a job's metrics, in the order of their times: a list of ``Metric`` with a few ways to look at it.

    Attributes of a ``Metric``: ``name``, ``value``, ``host`` (the instance, empty for the job), ``step`` (None where
    there is none) and ``time_s``, seconds since the epoch.
    """

    def named(self, *patterns: str) -> "Metrics":
        """Return those of these names; a pattern may have ``*``, and none at all takes every name."""
        # fnmatch.fnmatch itself takes capitals for small letters on Windows.
        return Metrics(one for one in self if not patterns or any(fnmatch.fnmatchcase(one.name, p) for p in patterns))

    def of_job(self) -> "Metrics":
        """Return those of the job: its loss, its rate."""
        return Metrics(one for one in self if not one.host)

    def of_instances(self) -> "Metrics":
        """Return those of single instances: memory, CPU, network."""
        return Metrics(one for one in self if one.host)

    @property
    def names(self) -> list[str]:
        """Every name once, in the order in which they came."""
        return list(dict.fromkeys(one.name for one in self))

    def rows(self) -> list[tuple[int | None, float, dict[str, float]]]:
        """Return one row for each step: the step, when it was (seconds since the epoch), and the values by name.

        Values without a step share a row where they were reported at once. Of a step that was done again after a
        restart the last values count. Values of instances are under ``name@instance``.
        """
        rows: dict[tuple[str, float], dict[str, float]] = {}
        times: dict[tuple[str, float], float] = {}
        for one in self:
            key = ("step", one.step) if one.step is not None else ("time", one.time_s)
            rows.setdefault(key, {})[f"{one.name}@{one.host}" if one.host else one.name] = one.value
            times[key] = one.time_s
        ordered = [(int(at) if kind == "step" else None, times[kind, at], row) for (kind, at), row in rows.items()]
        # None has no order among numbers: the rows without a step come last, by their times.
        return sorted(ordered, key=lambda row: (row[0] is None, row[0] or 0, row[1]))

    def to_frame(self, *, wide: bool = False) -> Any:
        """Return a ``pandas.DataFrame``.

        Args:
            wide: One row for each step with a column for each name, for ``.plot()``; else one row for each value,
                with the columns ``name``, ``value``, ``host``, ``step``, and ``time`` (UTC).

        Raises:
            MissingDependency: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingDependency(f"to_frame needs {error.name}: python3 -m pip install pandas") from error
        if not wide:
            # The columns by name, so that a job without metrics has them too.
            frame = pandas.DataFrame([asdict(one) for one in self], columns=["name", "value", "host", "step", "time_s"])
            frame["time"] = pandas.to_datetime(frame.pop("time_s"), unit="s", utc=True)
            # pandas' own Int64 has a place for no step; as floats, steps would be 3.0.
            return frame.astype({"step": "Int64"})
        rows = self.rows()
        # An index is either of steps or of times, and a time is what every row has.
        if any(step is None for step, _, _ in rows):
            index = pandas.DatetimeIndex(pandas.to_datetime([at for _, at, _ in rows], unit="s", utc=True), name="time")
        else:
            index = pandas.Index([step for step, _, _ in rows], name="step", dtype="int64")
        return pandas.DataFrame([row for _, _, row in rows], index=index)

    def __repr__(self) -> str:
        lines = [f"<{_count(self, 'value')} of {_count(self.names, 'metric')}>" if self else "<no metrics>"]
        for name in self.names[:MOST_SHOWN]:
            values = [one for one in self if one.name == name]
            step = "" if values[-1].step is None else f" at step {values[-1].step}"
            lines.append(f"  {name}: {metric_value(values[-1].value)}{step}, {_count(values, 'value')}")
        hidden = self.names[MOST_SHOWN:]
        return "\n".join(lines + ([f"  and {len(hidden)} more"] if hidden else []))


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


class FoundByService:
    """Asks for the values that the service found; of a job that ended long ago once, since nothing comes any more."""

    def __init__(self, service: Service) -> None:
        """Ask ``service``."""
        self._service = service
        self._settled: dict[str, Sequence[Metric]] = {}

    def of(self, jobs: Iterable[Description]) -> Iterator[Metric]:
        """Yield the values of these jobs' metric definitions."""
        for job in jobs:
            if job.name in self._settled:
                yield from self._settled[job.name]
                continue
            metrics = list(_found(self._service, job))
            if job.ended is not None and time.time() - job.ended.timestamp() > SETTLED_S:
                self._settled[job.name] = metrics
            yield from metrics


def _found(service: Service, job: Description) -> Iterator[Metric]:
    """Yield the values by the minute, and where that is nothing, the last one."""
    final = {item["MetricName"]: item for item in job.answer.get("FinalMetricDataList", ())}
    defined = job.answer.get("AlgorithmSpecification", {}).get("MetricDefinitions", ())
    for name in dict.fromkeys([*(item["Name"] for item in defined), *final]):
        series = list(_series(service, job, name)) if job.created is not None and job.started is not None else []
        yield from series
        if not series and name in final:
            at = final[name].get("Timestamp")
            yield Metric(name=name, value=final[name]["Value"], time_s=at.timestamp() if at else 0.0)


def _series(service: Service, job: Description, name: str) -> Iterator[Metric]:
    assert job.created is not None
    end = (job.ended or datetime.now(UTC)) + timedelta(seconds=PERIOD_S)
    # Of a job of more than a day each point stands for several minutes: CloudWatch refuses a call of more points.
    minutes = math.ceil((end - job.created).total_seconds() / PERIOD_S / MAX_POINTS)
    answer = service.call(
        "cloudwatch",
        "get_metric_statistics",
        Namespace=job.api.log_group,
        MetricName=name,
        Dimensions=[{"Name": job.api.name_key, "Value": job.name}],
        StartTime=job.created,
        EndTime=end,
        Period=PERIOD_S * max(1, minutes),
        Statistics=["Average"],
    )
    # CloudWatch gives them in no order.
    for point in sorted(answer.get("Datapoints", ()), key=lambda point: point["Timestamp"]):
        yield Metric(name=name, value=point["Average"], time_s=point["Timestamp"].timestamp())
