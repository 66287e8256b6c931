"""The metrics of a job, from its log and from the service's metric definitions, as a list."""

import fnmatch
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from raysm.core.client.job.description import Description
from raysm.core.client.logs.rendering import marked_value
from raysm.core.client.service import Service
from raysm.core.protocol.events import Metric
from raysm.core.protocol.terminal_text import visible
from raysm.errors import used_by

PERIOD_S = 60
MAX_POINTS = 1440
MAX_SHOWN = 12


class Metrics(list[Metric]):
    """The values of a job's metrics by time: a list of ``Metric`` with a few ways to look at it.

    Attributes of a ``Metric``: ``name``, ``value``, ``host`` (the instance, empty for the job),
    ``step`` (None if there is none) and ``time_s``, seconds since the epoch.

    Attributes:
        minute_means: Names of the metrics whose values are CloudWatch's means of a minute, since
            the log has none.
    """

    def __init__(self, values: Iterable[Metric] = (), minute_means: Iterable[str] = ()) -> None:
        super().__init__(values)
        self.minute_means = frozenset(minute_means)

    def named(self, *patterns: str) -> "Metrics":
        """Return the values of these names; a pattern may have ``*``; no patterns mean all."""
        # fnmatch.fnmatch itself ignores case on Windows.
        return Metrics(
            one
            for one in self
            if not patterns or any(fnmatch.fnmatchcase(one.name, p) for p in patterns)
        )

    def of_job(self) -> "Metrics":
        """Return the metrics of the job: its loss, its rate."""
        return Metrics(one for one in self if not one.host)

    def of_instances(self) -> "Metrics":
        """Return the metrics of single instances: memory, CPU, network."""
        return Metrics(one for one in self if one.host)

    @property
    def names(self) -> list[str]:
        """Every name once, in the order of its first value."""
        return list(dict.fromkeys(one.name for one in self))

    def rows(self) -> list[tuple[int | None, float, dict[str, float]]]:
        """Return one row for each step.

        It has the step, its time (seconds since the epoch), and the values by name.

        Values without a step share a row if they were reported together. If a step was repeated
        after a restart, its last values count. Values of instances are named ``name@instance``.
        """
        rows: dict[tuple[int | None, float, int], dict[str, float]] = {}
        times: dict[tuple[int | None, float, int], float] = {}
        counts: Counter[tuple[str, float]] = Counter()
        for one in self:
            column = f"{one.name}@{one.host}" if one.host else one.name
            key: tuple[int | None, float, int]
            if one.step is not None:
                key = (one.step, 0.0, 0)
            else:
                # Lines of a log may have the same time, since it is in milliseconds.
                key = (None, one.time_s, counts[column, one.time_s])
                counts[column, one.time_s] += 1
            rows.setdefault(key, {})[column] = one.value
            times[key] = one.time_s
        ordered = [(key[0], times[key], row) for key, row in rows.items()]
        # The rows without a step come last, by their times.
        return sorted(ordered, key=lambda row: (row[0] is None, row[0] or 0, row[1]))

    def to_frame(self, *, wide: bool = False) -> Any:
        """Return a ``pandas.DataFrame``.

        Args:
            wide: One row for each step with a column for each name, for ``.plot()``; else one row
                for each value, with the columns ``name``, ``value``, ``host``, ``step``, and
                ``time`` (UTC).

        Raises:
            MissingDependency: pandas is not installed.
        """
        with used_by("to_frame"):
            import pandas
        if not wide:
            # The columns are named, so that a job without metrics has them too.
            frame = pandas.DataFrame(
                [asdict(one) for one in self], columns=["name", "value", "host", "step", "time_s"]
            )
            frame["time"] = pandas.to_datetime(frame.pop("time_s"), unit="s", utc=True)
            # Int64 can hold a missing step; as floats, steps would be 3.0.
            return frame.astype({"step": "Int64"})
        rows = self.rows()
        if any(step is None for step, _, _ in rows):
            index = pandas.DatetimeIndex(
                pandas.to_datetime([at for _, at, _ in rows], unit="s", utc=True), name="time"
            )
        else:
            index = pandas.Index([step for step, _, _ in rows], name="step", dtype="int64")
        return pandas.DataFrame([row for _, _, row in rows], index=index)

    def __repr__(self) -> str:
        lines = [
            f"<{_count(self, 'value')} of {_count(self.names, 'metric')}>"
            if self
            else "<no metrics>"
        ]
        for name in self.names[:MAX_SHOWN]:
            values = [one for one in self if one.name == name]
            step = "" if values[-1].step is None else f" at step {values[-1].step}"
            lines.append(
                f"  {name}: {marked_value(values[-1].value)}{step}, {_count(values, 'value')}"
            )
        hidden = self.names[MAX_SHOWN:]
        return visible("\n".join(lines + ([f"  and {len(hidden)} more"] if hidden else [])))


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def found_by_service(
    service: Service, jobs: Iterable[Description], known: Collection[str]
) -> Iterator[Metric]:
    """Yield what the service knows of these jobs' metric definitions, beyond ``known``.

    ``known`` are the metrics that the log has.

    CloudWatch gives the mean of each minute; if it has none, the job's description has the last
    value.
    """
    for job in jobs:
        final = {item["MetricName"]: item for item in job.answer.get("FinalMetricDataList", ())}
        defined = job.answer.get("AlgorithmSpecification", {}).get("MetricDefinitions", ())
        for name in dict.fromkeys([*(item["Name"] for item in defined), *final]):
            if name in known:
                continue
            series = (
                list(_series(service, job, name))
                if job.created is not None and job.started is not None
                else []
            )
            yield from series
            if not series and name in final:
                at = final[name].get("Timestamp")
                yield Metric(
                    name=name, value=final[name]["Value"], time_s=at.timestamp() if at else 0.0
                )


def _series(service: Service, job: Description, name: str) -> Iterator[Metric]:
    assert job.created is not None
    end = (job.ended or datetime.now(UTC)) + timedelta(seconds=PERIOD_S)
    # Each value of a job of more than a day covers several minutes: CloudWatch refuses a call with
    # more values.
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
    # CloudWatch's order is arbitrary.
    for point in sorted(answer.get("Datapoints", ()), key=lambda point: point["Timestamp"]):
        yield Metric(name=name, value=point["Average"], time_s=point["Timestamp"].timestamp())
