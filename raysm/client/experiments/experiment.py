"""One job as a row of the table of experiments: a frozen value that can be kept as JSON, and read back."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from raysm.client.experiments.curves import Summary, goal_of
from raysm.client.job.description import SecondaryStatus, Status

__all__ = ["Experiment", "Value"]

Value = str | int | float | bool | None
"""What a column holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """One job, or one trial of a sweep, as it was when it was read; one that has ended is read once."""

    name: str
    """The job's name, for ``raysm.attach``."""
    arn: str
    """Its ARN."""
    kind: str
    """Which of SageMaker's APIs runs it: ``training``, ``processing``."""
    status: Status
    """How it is."""
    secondary: SecondaryStatus = SecondaryStatus.NONE
    """What it does just now; of a Processing job NONE."""
    message: str = ""
    """Why it failed, or what the service says to what it does just now."""
    project: str | None = None
    """The project of its task; None of a job that raysm did not send."""
    task: str | None = None
    """The task of which it is a run; None of a job that raysm did not send."""
    workload: str | None = None
    """The kind of its workload; None of a job that raysm did not send."""
    first: str | None = None
    """The first job's name, where it is a follow-up of one."""
    trial: int | None = None
    """The trial's number, where it is one of a sweep; its name is then the job's with the number, ``digits-1/3``."""
    parameters: Mapping[str, Value] = field(default_factory=dict)
    """What the workload was called with, and the hyperparameters."""
    metrics: Mapping[str, Summary] = field(default_factory=dict)
    """What each metric of the job came to, by its name."""
    instances: tuple[tuple[str, int], ...] = ()
    """Instance type and count of each group."""
    created_s: float = 0.0
    """When it was sent, in seconds since the epoch."""
    started_s: float | None = None
    """When its instances were started; None where they were not yet."""
    ended_s: float | None = None
    """When it ended; None while it runs."""
    is_billed: bool = True
    """Whether it costs anything: on this machine nothing does."""
    cost_usd: float | None = None
    """What it has cost so far, its volumes where their price is known; None where a price or a time is not known."""
    image: str = ""
    """The container image."""
    code: str = ""
    """Digest of the user's code; empty where it is not known."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of raysm and Python, where the job was sent; empty where that is not known."""

    @property
    def created(self) -> datetime:
        """When it was sent, UTC."""
        return datetime.fromtimestamp(self.created_s, UTC)

    @property
    def started(self) -> datetime | None:
        """When its instances were started, UTC."""
        return None if self.started_s is None else datetime.fromtimestamp(self.started_s, UTC)

    @property
    def ended(self) -> datetime | None:
        """When it ended, UTC."""
        return None if self.ended_s is None else datetime.fromtimestamp(self.ended_s, UTC)

    @property
    def duration_s(self) -> float | None:
        """Seconds from the start of its instances to its end; None while it has not ended, or never started."""
        if self.started_s is None or self.ended_s is None:
            return None
        # The clocks of the service and of the instances are two.
        return max(0.0, self.ended_s - self.started_s)

    def value(self, column: str) -> Value:
        """Return what stands in a column; None where nothing does.

        Args:
            column: A fact (``status``, ``duration_s``, ``cost_usd``), a parameter, or a metric: its last value;
                ``loss:min``, ``loss:max`` and ``loss:best`` are its lowest, its highest and its best.
        """
        # First: a parameter called "status" must not hide how the job is.
        if column in FACTS:
            fact = getattr(self, column)
            return str(fact) if column == "status" else fact
        if column in self.parameters:
            return self.parameters[column]
        # A metric's own name may have a colon: it is taken as a whole where there is one.
        name, _, which = column.rpartition(":") if column not in self.metrics else (column, "", "last")
        summary = self.metrics.get(name)
        if summary is None:
            return None
        goal = goal_of(name)
        return {"last": summary.last, "min": summary.lowest, "max": summary.highest, "best": summary.best(goal)}.get(
            which
        )

    def as_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> "Experiment":
        """Return what ``as_json`` wrote."""
        # Not by the codec of requests, which checks every field: a thousand rows would take a second.
        data = json.loads(text)
        data["status"], data["secondary"] = Status(data["status"]), SecondaryStatus(data["secondary"])
        data["metrics"] = {name: Summary(**summary) for name, summary in data["metrics"].items()}
        data["instances"] = tuple((kind, count) for kind, count in data["instances"])
        return cls(**data)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values for others to read: times in ISO 8601, an unknown cost as null."""
        times = {name: getattr(self, name) for name in ("created", "started", "ended")}
        # created_s and its kin, which stand there in ISO 8601.
        content = {key: item for key, item in asdict(self).items() if not key.endswith("ed_s")}
        return content | {
            "status": str(self.status),
            "secondary": str(self.secondary),
            **{name: at.isoformat() if at else None for name, at in times.items()},
            "duration_s": self.duration_s,
        }


FACTS = (
    "name",
    "status",
    "project",
    "task",
    "workload",
    "trial",
    "created_s",
    "started_s",
    "ended_s",
    "duration_s",
    "cost_usd",
    "code",
)
"""Columns that every job has: no parameter and no metric of the same name hides them."""
