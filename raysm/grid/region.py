"""One region of the service as a grid's controller sees it, and its implementation over a ``Service``.

Every call may raise ``ServiceError``; ``raysm.grid.endings`` says what it means.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeAlias

from raysm.client.job.description import Description, Status, read
from raysm.client.logs.metrics import PERIOD_S
from raysm.client.prepared import Prepared
from raysm.client.service import Service
from raysm.client.storage.payload import remove_payload
from raysm.contract.job_api import TRAINING
from raysm.grid.attempt import Attempt
from raysm.grid.task import Task

__all__ = ["Listed", "Page", "Prepare", "RATES_PAGE", "Region", "ServiceRegion", "token_of"]

RATES_PAGE = 500
"""Jobs whose metric one call asks for: the most that GetMetricData takes
(https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_GetMetricData.html)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """What List says of one job."""

    name: str
    """The job's name."""
    status: Status
    """How it is."""
    created_s: float
    """When it was sent, on the service's clock."""
    changed_s: float
    """When the service last changed it."""

    @property
    def seen(self) -> str:
        """What tells one state of the job from another: where it is unchanged, Describe has nothing new."""
        return f"{self.status} {self.changed_s:.3f}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One page of List, the latest jobs first."""

    jobs: tuple[Listed, ...]
    """Those whose names hold what was asked for: AWS filters after it has taken the page, so there may be none."""
    token: str | None = None
    """Of the next page; None is the end."""


class Region(Protocol):
    """One region of the service, as one grid sees it."""

    def create(self, task: Task, attempt: Attempt) -> None:
        """Have the service run an attempt; returns as well where it has this very job already.

        Raises:
            ServiceError: It was refused, or nobody knows; ``ResourceInUse`` is another's job of this name.
        """

    def describe(self, name: str) -> Description:
        """Return what the service says of a job.

        Raises:
            JobNotFound: It knows none of this name.
            ServiceError: It did not answer.
        """

    def page(self, contains: str, token: str | None) -> Page:
        """Return a page of the jobs whose names hold ``contains``."""

    def rates(self, names: Sequence[str], metric: str) -> Mapping[str, float]:
        """Return the last value of a metric of each of these jobs, as far as there is one of the last minutes.

        Args:
            names: Of jobs, ``RATES_PAGE`` at most.
            metric: Its name.
        """

    def stop(self, name: str) -> None:
        """Ask the service to stop a job."""


Prepare: TypeAlias = Callable[[Task, Attempt], Prepared]
"""Makes the job of an attempt, under the attempt's own name; the same attempt always makes the same job."""

RECENT = timedelta(minutes=10)
"""A rate that is older is none: the job saves, waits for its data, or has stalled."""

PAGE = 100
"""Jobs on a page of List: the most that it takes, as pages are what its rate counts."""


class ServiceRegion:
    """A region of a service; see ``raysm.grid.region.Region``."""

    def __init__(self, service: Service, prepare: Prepare, grid: str = "") -> None:
        """Take the service of the region.

        Args:
            service: Of the region.
            prepare: Makes an attempt's job for it.
            grid: With what the names of the grid's jobs begin, and of its folders in S3.
        """
        self._service = service
        self._prepare = prepare
        self._grid = grid

    def create(self, task: Task, attempt: Attempt) -> None:
        """Send an attempt; one that the service has already is found by its payload's place.

        Raises:
            InvalidRequest: The row cannot be sent.
            ServiceError: As the service says.
        """
        # Its payload stays where the answer is lost: a call that lands late finds it, and so does the next one.
        self._prepare(task, attempt).send(leaves_payload=True)

    def describe(self, name: str) -> Description:
        """Return what Describe says; of a job that has ended, the payload is removed: nobody needs it any more."""
        answer = self._service.describe(TRAINING, name)
        description = read(TRAINING, answer)
        if description.status.is_terminal:
            remove_payload(answer, name, self._service)
        return description

    def page(self, contains: str, token: str | None) -> Page:
        """Return a page of List, the latest jobs first."""
        more = {} if token is None else {"NextToken": token}
        answer = self._service.call(
            "sagemaker",
            "list_training_jobs",
            NameContains=contains,
            SortBy="CreationTime",
            SortOrder="Descending",
            MaxResults=PAGE,
            **more,
        )
        return Page(jobs=tuple(map(_listed, answer["TrainingJobSummaries"])), token=answer.get("NextToken"))

    def rates(self, names: Sequence[str], metric: str) -> Mapping[str, float]:
        """Return what CloudWatch has of the last minutes; one call, however many jobs there are."""
        now = datetime.now(UTC)
        answer = self._service.call(
            "cloudwatch",
            "get_metric_data",
            MetricDataQueries=[_query(place, name, metric) for place, name in enumerate(names)],
            StartTime=now - RECENT,
            # A minute that is not over has a value, too.
            EndTime=now + timedelta(seconds=PERIOD_S),
            ScanBy="TimestampDescending",
        )
        series = {item["Id"]: item["Values"] for item in answer["MetricDataResults"]}
        return {name: series[f"j{place}"][0] for place, name in enumerate(names) if series.get(f"j{place}")}

    def stop(self, name: str) -> None:
        """Ask the service to stop a job."""
        self._service.stop(TRAINING, name)


def _query(place: int, name: str, metric: str) -> dict[str, Any]:
    dimensions = [{"Name": TRAINING.name_key, "Value": name}]
    of_job = {"Namespace": TRAINING.log_group, "MetricName": metric, "Dimensions": dimensions}
    # An Id begins with a small letter, and holds no hyphens: a job's name is none.
    return {"Id": f"j{place}", "MetricStat": {"Metric": of_job, "Period": PERIOD_S, "Stat": "Average"}}


def _listed(summary: Mapping[str, Any]) -> Listed:
    return Listed(
        name=summary["TrainingJobName"],
        status=Status(summary["TrainingJobStatus"]),
        created_s=summary["CreationTime"].timestamp(),
        changed_s=summary.get("LastModifiedTime", summary["CreationTime"]).timestamp(),
    )


def token_of(secret: str, attempt: Attempt) -> bytes:
    """Return the job's own secret: the same whenever the same attempt is prepared, and no other attempt's.

    Drawn anew each time, the payload of a repeated Create would not be that of the first one, which may still land.
    """
    return hmac.new(secret.encode(), attempt.name.encode(), hashlib.sha256).hexdigest().encode()
