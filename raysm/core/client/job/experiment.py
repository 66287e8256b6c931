"""A job or a trial as a row of the table of experiments, with a short curve of each metric."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from raysm.core.client.job.description import SecondaryStatus, Status
from raysm.core.protocol.events import Metric
from raysm.core.request.codec import spelled

Value: TypeAlias = str | int | float | bool | None

Goal: TypeAlias = Literal["min", "max"]

Curve: TypeAlias = list[tuple[int | None, float, float]]
"""Step (or None), seconds since the epoch, value."""

MAX_POINTS = 200
"""Enough for a chart; 1,000 jobs of five metrics take about 25 MB."""

FALLS = frozenset(
    "loss losses error errors err perplexity ppl mse rmse mae mape nll wer cer "
    "latency second seconds s ms".split()
)
RISES = frozenset(
    "acc accuracy auc auroc f1 precision recall score r2 mAP bleu rouge rougel "
    "reward throughput iou miou".split()
)
"""Words of a metric's name that say whether less or more is better; ``map`` alone may be a map of
anything."""
SPEED = re.compile(r"(?:per[ _-]?|/)(?:s|sec|second)$")
"""The end of a name of a speed, ``rows_per_s`` or ``images/second``, of which more is better."""
WORD = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z][a-z])")


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    last: float
    lowest: float
    highest: float
    count: int
    step: int | None = None
    not_finite_from: str = ""
    """Where the NaN or infinite values at the end begin, ``step 3``, ``step 3 on rank 2``, or
    ``value 3`` without steps; else empty."""

    def best(self, goal: Goal | None) -> float | None:
        return {"min": self.lowest, "max": self.highest, None: None}[goal]


def goal_of(name: str) -> Goal | None:
    """Return whether less or more of a metric is better by the words of its name, else None."""
    words = {_known(word) for word in WORD.split(name)}
    is_speed = SPEED.search(name.lower()) is not None
    rises = is_speed or name == "map" or not words.isdisjoint(RISES)
    falls = not is_speed and not words.isdisjoint(FALLS)
    if rises == falls:
        return None
    return "max" if rises else "min"


def _known(word: str) -> str:
    """Return a word as the tables of words write it: ``Acc`` and ``acc5`` are ``acc``."""
    bare = word.rstrip("0123456789")
    forms = (word, word.lower(), *((bare, bare.lower()) if len(bare) >= 3 else ()))
    return next((form for form in forms if form in RISES or form in FALLS), word.lower())


def curves_of(metrics: Iterable[Metric]) -> dict[str, Curve]:
    """Return the whole curve of each metric of the job itself, not of its instances."""
    curves: dict[str, dict[tuple[int | None, int], tuple[int | None, float, float]]] = {}
    for metric in metrics:
        if not metric.host:
            points = curves.setdefault(metric.name, {})
            # Values without a step are all kept. Each call of a session has steps of its own.
            key = (
                (metric.step, metric.call or 0) if metric.step is not None else (None, len(points))
            )
            points[key] = (metric.step, metric.time_s, metric.value)
    return {name: list(points.values()) for name, points in curves.items()}


class Divergences:
    """Where the metrics of a job became NaN or infinite, unless they became finite again.

    A rank other than 0 reports only its first such value. A finite value of rank 0 does not mean
    that this rank has recovered.
    """

    def __init__(self, metrics: Iterable[Metric] = ()) -> None:
        self._counts: Counter[str] = Counter()
        self._found: dict[str, dict[int, tuple[float, str]]] = {}
        for metric in metrics:
            self.add(metric)

    def add(self, metric: Metric) -> None:
        if metric.host:
            return
        self._counts[metric.name] += 1
        by_rank = self._found.setdefault(metric.name, {})
        rank = metric.rank or 0
        if math.isfinite(metric.value):
            # Where rank 0 was not finite either, the value was that of all ranks.
            if rank == 0 and rank in by_rank:
                by_rank.clear()
            by_rank.pop(rank, None)
            return
        if rank in by_rank:
            by_rank[rank] = metric.value, by_rank[rank][1]
            return
        number = self._counts[metric.name]
        where = f"value {number}" if metric.step is None else f"step {metric.step}"
        if metric.rank is not None:
            where += f" on rank {metric.rank}"
        by_rank[rank] = metric.value, where

    def first(self, name: str) -> tuple[float, str] | None:
        """Return the last value that is not finite, and where these begin: ``step 3 on rank 2``.

        None means that all are finite.
        """
        return next(iter(self._found.get(name, {}).values()), None)


def summary_of(curve: Curve, diverged: tuple[float, str] | None = None) -> Summary:
    """Return the summary of a curve; ``diverged`` is what ``Divergences.first`` says of it."""
    step, _, last = curve[-1]
    # NaN has no order: as the first value it would be both the lowest and the highest. No infinity
    # is the best value.
    values = [value for _, _, value in curve if math.isfinite(value)] or [last]
    begin = not_finite_from(curve)
    if diverged is not None:
        last, begin = diverged
    return Summary(
        last=last,
        lowest=min(values),
        highest=max(values),
        count=len(curve),
        step=step,
        not_finite_from=begin,
    )


def not_finite_from(curve: Curve) -> str:
    """Return ``Summary.not_finite_from`` of a curve."""
    begin = len(curve)
    while begin and not math.isfinite(curve[begin - 1][2]):
        begin -= 1
    if begin == len(curve):
        return ""
    step = curve[begin][0]
    return f"value {begin + 1}" if step is None else f"step {step}"


def thinned(curve: Curve, max_points: int = MAX_POINTS) -> Curve:
    """Reduce a curve to at most ``max_points``.

    It keeps both ends, and the lowest and highest value of each bucket.

    A bucket with NaN or infinite values keeps one of them, so that the drawn line breaks there.
    """
    if len(curve) <= max_points:
        return curve
    has_gaps = not all(math.isfinite(value) for _, _, value in curve)
    buckets = max_points // (3 if has_gaps else 2) - 1
    chosen = {0, len(curve) - 1}
    for number in range(buckets):
        bucket = range(number * len(curve) // buckets, (number + 1) * len(curve) // buckets)
        known = [index for index in bucket if math.isfinite(curve[index][2])]
        if known:
            chosen.add(min(known, key=lambda index: curve[index][2]))
            chosen.add(max(known, key=lambda index: curve[index][2]))
        if len(known) < len(bucket):
            chosen.add(next(index for index in bucket if not math.isfinite(curve[index][2])))
    return [curve[index] for index in sorted(chosen)]


FACTS = (
    "name", "status", "project", "task", "workload", "trial",
    "created_s", "started_s", "ended_s", "duration_s", "cost_usd", "code",
)  # fmt: skip
"""Columns that every job has; a parameter or metric of the same name does not hide them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """One job, or one trial of a sweep, as it was when it was read."""

    name: str
    """The job's name, for ``raysm.attach``."""
    arn: str
    kind: str
    """SageMaker's API: ``training`` or ``processing``."""
    status: Status
    secondary: SecondaryStatus = SecondaryStatus.NONE
    """SageMaker's secondary status; NONE for a Processing job."""
    message: str = ""
    """The failure reason, or the service's message about the secondary status."""
    project: str | None = None
    """None for a job that raysm did not submit; then task and workload are None too."""
    task: str | None = None
    workload: str | None = None
    """The kind of its workload."""
    first: str | None = None
    """For a follow-up job, the name of the first job."""
    trial: int | None = None
    """The number of a trial of a sweep, or of a call of a session; its name is the job's and this,
    ``digits-1/3``."""
    parameters: Mapping[str, Value] = field(default_factory=dict)
    """The workload's arguments and the hyperparameters."""
    metrics: Mapping[str, Summary] = field(default_factory=dict)
    instances: tuple[tuple[str, int], ...] = ()
    """Instance type and count of each group."""
    created_s: float = 0.0
    """When it was submitted, in seconds since the epoch."""
    started_s: float | None = None
    """When its instances started, or None."""
    ended_s: float | None = None
    """When it ended, or None."""
    is_billed: bool = True
    """False for jobs on this machine, which cost nothing."""
    cost_usd: float | None = None
    """The cost so far, with volumes if their price is known; None if a price or a time is not
    known."""
    image: str = ""
    code: str = ""
    """The digest of the user's code, or empty."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions of raysm and Python that submitted the job."""

    @property
    def created(self) -> datetime:
        """When it was submitted, UTC."""
        return datetime.fromtimestamp(self.created_s, UTC)

    @property
    def started(self) -> datetime | None:
        """When its instances started, UTC."""
        return None if self.started_s is None else datetime.fromtimestamp(self.started_s, UTC)

    @property
    def ended(self) -> datetime | None:
        """When it ended, UTC."""
        return None if self.ended_s is None else datetime.fromtimestamp(self.ended_s, UTC)

    @property
    def duration_s(self) -> float | None:
        """Seconds from the start of its instances to its end, or None."""
        if self.started_s is None or self.ended_s is None:
            return None
        # The clocks of the service and of the instances differ.
        return max(0.0, self.ended_s - self.started_s)

    def value(self, column: str) -> Value:
        """Return the value in a column, or None.

        Args:
            column: A fact (``status``, ``duration_s``, ``cost_usd``), a parameter, or a metric: its
                last value; ``loss:min``, ``loss:max`` and ``loss:best`` are its lowest, its highest
                and its best.
        """
        # First: a parameter called "status" must not hide the job's.
        if column in FACTS:
            fact = getattr(self, column)
            return str(fact) if column == "status" else fact
        if column in self.parameters:
            return self.parameters[column]
        # The name of a metric may have a colon itself.
        name, _, which = (
            column.rpartition(":") if column not in self.metrics else (column, "", "last")
        )
        summary = self.metrics.get(name)
        if summary is None:
            return None
        goal = goal_of(name)
        return {
            "last": summary.last,
            "min": summary.lowest,
            "max": summary.highest,
            "best": summary.best(goal),
        }.get(which)

    def as_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> "Experiment":
        """Parse the JSON of ``as_json``."""
        # Not by the codec of requests: it checks every field, which takes a second for a thousand
        # rows.
        data = json.loads(text)
        data["status"] = Status(data["status"])
        data["secondary"] = SecondaryStatus(data["secondary"])
        data["metrics"] = {name: Summary(**summary) for name, summary in data["metrics"].items()}
        data["instances"] = tuple((kind, count) for kind, count in data["instances"])
        return cls(**data)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values for other programs: times in ISO 8601, an unknown cost as null.

        JSON has no NaN: a value that is not finite is the text ``"NaN"``, ``"Infinity"`` or
        ``"-Infinity"``.
        """
        times = {name: getattr(self, name) for name in ("created", "started", "ended")}
        # Leaves out created_s, started_s and ended_s.
        content = {
            key: spelled(item) for key, item in asdict(self).items() if not key.endswith("ed_s")
        }
        return content | {
            "status": str(self.status),
            "secondary": str(self.secondary),
            **{name: at.isoformat() if at else None for name, at in times.items()},
            "duration_s": self.duration_s,
        }
