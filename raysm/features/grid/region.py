"""The service's regions as a grid's controller sees them: their calls and token buckets.

Every call may raise ``ServiceError``; ``raysm.features.grid.endings`` says what it means.
"""

import contextlib
import functools
import hashlib
import hmac
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from raysm.core.client.job.description import Description, Status, read
from raysm.core.client.logs.metrics import PERIOD_S
from raysm.core.client.service import Service
from raysm.core.client.storage.payload import remove_payload
from raysm.core.client.submit import Prepared
from raysm.core.protocol.job_api import TRAINING
from raysm.errors import ServiceError
from raysm.features.grid.attempt import Attempt, AttemptState
from raysm.features.grid.endings import classify_refusal
from raysm.features.grid.limiter import Limiter
from raysm.features.grid.row import Row
from raysm.features.grid.store.database import LeaseLost
from raysm.features.grid.store.store import Store

RATES_PAGE = 500
"""Jobs whose metric one call reads: the most that GetMetricData takes
(https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_GetMetricData.html)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    name: str
    status: Status
    created_s: float
    changed_s: float

    @property
    def seen(self) -> str:
        """A text that changes whenever Describe has news."""
        return f"{self.status} {self.changed_s:.3f}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    jobs: tuple[Listed, ...]
    """May be empty before the end: AWS filters by name after it has taken the page."""
    token: str | None = None


Prepare: TypeAlias = Callable[[Row, Attempt], Prepared]
"""Prepares the job of an attempt, always the same job for the same attempt."""

RECENT = timedelta(minutes=10)
"""Older rates do not count: the job is saving, waiting for data, or stalled."""

PAGE = 100
"""Jobs on a page of List: the most that it takes, since its rate counts pages."""


class Region:
    def __init__(self, service: Service, prepare: Prepare) -> None:
        self._service = service
        self._prepare = prepare

    def create(self, row: Row, attempt: Attempt) -> None:
        """Create an attempt's job; also succeeds if the service already has this very job."""
        # Keep the payload if the answer is lost: a call that is carried out late needs it, and so
        # does the next one.
        self._prepare(row, attempt).send(leaves_payload=True)

    def describe(self, name: str) -> Description:
        """Return what the service says of a job; the payload of a job that has ended is deleted."""
        answer = self._service.describe(TRAINING, name)
        description = read(TRAINING, answer)
        if description.status.is_terminal:
            remove_payload(answer, name, self._service)
        return description

    def page(self, contains: str, token: str | None) -> Page:
        query = {
            "NameContains": contains,
            "SortBy": "CreationTime",
            "SortOrder": "Descending",
            "MaxResults": PAGE,
        }
        following = {} if token is None else {"NextToken": token}
        answer = self._service.call("sagemaker", "list_training_jobs", **query, **following)
        return Page(
            jobs=tuple(map(_listed, answer["TrainingJobSummaries"])), token=answer.get("NextToken")
        )

    def rates(self, names: Sequence[str], metric: str) -> Mapping[str, float]:
        """Return the last value of a metric for up to ``RATES_PAGE`` jobs."""
        return read_rates(self._service, names, metric)

    def stop(self, name: str) -> None:
        self._service.stop(TRAINING, name)


def read_rates(service: Service, names: Sequence[str], metric: str) -> Mapping[str, float]:
    """Return the last value of a metric for up to ``RATES_PAGE`` jobs of one region.

    Jobs without a recent value are left out.
    """
    now = datetime.now(UTC)
    answer = service.call(
        "cloudwatch",
        "get_metric_data",
        MetricDataQueries=[_query(index, name, metric) for index, name in enumerate(names)],
        StartTime=now - RECENT,
        # The current minute has a value, too.
        EndTime=now + timedelta(seconds=PERIOD_S),
        ScanBy="TimestampDescending",
    )
    series = {item["Id"]: item["Values"] for item in answer["MetricDataResults"]}
    return {
        name: series[f"j{index}"][0] for index, name in enumerate(names) if series.get(f"j{index}")
    }


def _query(index: int, name: str, metric: str) -> dict[str, Any]:
    dimensions = [{"Name": TRAINING.name_key, "Value": name}]
    of_job = {"Namespace": TRAINING.log_group, "MetricName": metric, "Dimensions": dimensions}
    # A job's name cannot be an Id: it has hyphens.
    return {
        "Id": f"j{index}",
        "MetricStat": {"Metric": of_job, "Period": PERIOD_S, "Stat": "Average"},
    }


def _listed(summary: Mapping[str, Any]) -> Listed:
    return Listed(
        name=summary["TrainingJobName"],
        status=Status(summary["TrainingJobStatus"]),
        created_s=summary["CreationTime"].timestamp(),
        changed_s=summary.get("LastModifiedTime", summary["CreationTime"]).timestamp(),
    )


def token_of(secret: str, attempt: Attempt) -> bytes:
    """Return the token of an attempt's job, derived from the grid's secret.

    With a random token, the payload of a repeated Create would differ from that of the first one,
    which may still be carried out.
    """
    return hmac.new(secret.encode(), attempt.name.encode(), hashlib.sha256).hexdigest().encode()


T = TypeVar("T")

LEAD_CALLS = 8
"""Number of latest Create calls whose fastest is the lead time; with fewer there is none, since the
first are slow."""


class RegionUnavailable(Exception):
    """A region gave no usable answer.

    Its token bucket was empty, or the call was throttled or failed.

    Attributes:
        reason: Why the call failed; empty if the region has only no token for it, or throttled it.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


Guard: TypeAlias = Callable[[str], None]
"""Raises if this process may not send or stop jobs any more, because another one may run the
grid."""


class RegionApi:
    """The calls of all regions, limited by token buckets.

    Calls of one region are made in order, regions in parallel.

    ``GridDatabase.between`` is called before and after every call with its name; a test ends the
    process there.
    """

    def __init__(
        self,
        regions: Mapping[str, Region],
        limiter: Limiter,
        store: Store,
        guard: Guard | None = None,
    ) -> None:
        self.regions = dict(regions)
        self.limiter = limiter
        self._guard = guard or (lambda attempt: None)
        self._store = store
        self._between = store.database.between
        self._turns = store.database.turns
        self._now = 0.0
        self._behind_s = 0.0
        # Why a region did not answer a call in this step, by region and operation: each such call
        # may wait for a minute. A region may refuse to list jobs and still stop them.
        self._silent: dict[tuple[str, str], str] = {}
        # Seconds from the beginning of a step to the answer to a Create, by region.
        self._leads: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LEAD_CALLS))

    def begin(self, now: float) -> None:
        self._now = now
        self._silent.clear()
        # The clock of the step's caller may differ from the service's.
        self._behind_s = self.limiter.moment() - now if self.limiter.moment is not None else 0.0

    def for_each_region(
        self,
        items: Iterable[T],
        region_of: Callable[[T], str],
        work: Callable[[str, list[T]], object],
    ) -> None:
        """Call ``work`` with each region and its items, in parallel.

        ``work`` calls only this region.

        Items of regions that are not the grid's are skipped.
        """
        by_region: dict[str, list[T]] = {}
        for item in items:
            region = region_of(item)
            if region in self.regions:
                by_region.setdefault(region, []).append(item)
        works = [functools.partial(work, region, own) for region, own in by_region.items()]
        if self.limiter.moment is None:
            # A simulated clock stands still during calls: threads gain nothing, and runs must be
            # repeatable.
            for of_region in works:
                of_region()
        else:
            self._turns.run(works)

    def create(self, row: Row, attempt: Attempt) -> None:
        region = attempt.region
        self._between("before create")
        self._guard(attempt.name)
        if not self._store.database.has_lease():
            raise LeaseLost(f"{attempt.name} was not sent: another process runs the grid")
        with self._turns.released():
            self.regions[region].create(row, attempt)
        if not self._store.database.has_lease():
            self._disown(attempt)
        if self.limiter.moment is not None:
            # Create is called after uploads, seconds after the step began.
            now = self.limiter.moment() - self._behind_s
            leads = self._leads[region]
            leads.append(now - self._now)
            # The next call will take as long; if it started only when its token is there, it would
            # always be late.
            self.limiter.made(
                region, "create", now, ahead_s=min(leads) if len(leads) == LEAD_CALLS else 0.0
            )
        self._between("after create")

    def _disown(self, attempt: Attempt) -> None:
        """Stop a job that was made after the lease was lost, unless the new owner counts it.

        Raises:
            LeaseLost: In any case.
        """
        known = self._store.attempts.find(attempt.name)
        # An attempt that was sent and has ended had this job: its end and cost are recorded.
        if known is None or (known.state is AttemptState.ENDED and known.sent_s is None):
            with self._store.database.transaction("stray", fenced=False):
                if self._store.orphans.find(attempt.name) is None:
                    self._store.add_orphan(attempt.name, attempt.region, known, self._now)
            with contextlib.suppress(ServiceError):
                self.regions[attempt.region].stop(attempt.name)
        raise LeaseLost(f"another process runs the grid since before {attempt.name} was sent")

    def call(self, region: str, operation: str, now: float, call: Callable[[Region], T]) -> T:
        if operation == "stop":
            self._guard("")
        if reason := self._silent.get((region, operation)):
            raise RegionUnavailable(reason)
        if not self.limiter.take(region, operation, now):
            raise RegionUnavailable
        return self.call_with_token(region, operation, now, call)

    def call_with_token(
        self, region: str, operation: str, now: float, call: Callable[[Region], T]
    ) -> T:
        """Return the answer to a call whose token the caller has taken; raises as ``call``."""
        self._between(f"before {operation}")
        try:
            with self._turns.released():
                answer = call(self.regions[region])
        except ServiceError as error:
            verdict = classify_refusal(error)
            if verdict.ending.is_throttle:
                self.limiter.throttled(region, operation, now)
                # Treated like an empty token bucket.
                raise RegionUnavailable from error
            # Other refusals are definite answers.
            if not verdict.ending.closes_region:
                raise
            self._silent[region, operation] = verdict.reason
            raise RegionUnavailable(verdict.reason) from error
        self._between(f"after {operation}")
        return answer
