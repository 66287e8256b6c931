"""A service of several regions without a service: its jobs live by a clock that the test moves."""

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from raysm.core.client.job.description import Description, SecondaryStatus, Status
from raysm.core.protocol.job_api import TRAINING
from raysm.errors import JobNotFound, ServiceError
from raysm.features.grid.region import Listed, Page

CAPACITY_ERROR = "CapacityError: Unable to provision requested ML compute capacity. Please retry."
THROTTLED = ServiceError(
    "create: ThrottlingException: Rate exceeded", code="ThrottlingException", is_transient=True
)
LOST = ServiceError(
    "create: Connection was closed before we received a valid response", is_transient=True
)


class Clock:
    """The moment, in seconds since the epoch."""

    def __init__(self, now=1_800_000_000.0):
        self.now = now


@dataclass(kw_only=True)
class Behaviour:
    """What a region does to its jobs, and to those who call."""

    start_s: float = 240.0
    run_s: float = 600.0
    spread: float = 0.0
    fails: dict = field(default_factory=dict)
    """Words of the end by a row's key, or by the share of jobs under the key ``share:WORDS``."""
    capacity: int = 10**9
    """Instances at a time."""
    quota: int = 10**9
    others: tuple = (0, 0.0)
    """Of the quota, what others use, and until when."""
    usd_per_hour: float = 1.0
    billed: float = 1.0
    """The share of its training that is billed."""
    lost: float = 0.0
    """The share of Creates that are carried out, and whose answers are lost."""
    late: float = 0.0
    """The share of Creates that are carried out ``late_s`` after their callers gave up."""
    late_s: float = 60.0
    silent: tuple = ()
    """Outages: pairs of moments."""
    refusal: ServiceError | None = None
    rates: dict = field(default_factory=dict)
    """Calls a second that are answered, by operation."""
    interrupted_s: float | None = None
    """Seconds after its start at which each job loses its spot capacity, once."""
    ask_at_s: float = 0.0
    """Seconds that this costs it: until it has capacity anew, and for what it does once more."""
    stop_s: float = 5.0
    """Seconds that a job takes to stop."""
    speed: float | None = None
    """What each job that runs says that it does in a second."""


@dataclass(kw_only=True)
class Life:
    """One job, as the service knows it."""

    name: str
    row_key: str
    count: int
    created_s: float
    started_s: float
    ended_s: float
    reason: str = ""
    asked_s: float | None = None
    listed: Listed | None = None
    """What List says of it, once it has ended."""

    @property
    def runs(self):
        return self.ended_s > self.started_s


class FakeRegion:
    """One region; see ``raysm.features.grid.region.Region``."""

    def __init__(self, name, clock, behaviour=None, seed=0):
        self.name = name
        self.clock = clock
        self.behaviour = behaviour or Behaviour()
        self.lives = {}
        self.calls = {"create": 0, "describe": 0, "list": 0, "stop": 0, "metrics": 0}
        self.throttled = 0
        self._chance = random.Random(f"{seed}/{name}")
        self._landing = []
        self._tokens = {}
        self._order = []

    # -- what the controller calls

    def create(self, row, attempt):
        self._enter("create")
        behaviour, chance = self.behaviour, self._chance.random()
        if attempt.name in self.lives:
            return
        if behaviour.refusal is not None:
            raise behaviour.refusal
        if chance < behaviour.late:
            self._landing.append((self.clock.now + behaviour.late_s, row, attempt))
            raise LOST
        others, until_s = behaviour.others
        used = sum(life.count for life in self._live()) + (
            others if self.clock.now < until_s else 0
        )
        if used + attempt.count > behaviour.quota:
            raise ServiceError(
                f"create: ResourceLimitExceeded: The account-level service limit '{attempt.instance_type} for training "
                f"job usage' is {behaviour.quota} Instances, with current utilization of {used} Instances and a "
                f"request delta of {attempt.count} Instances.",
                code="ResourceLimitExceeded",
            )
        self._begin(row, attempt, self.clock.now)
        if chance < behaviour.late + behaviour.lost:
            raise LOST

    def describe(self, name):
        self._enter("describe")
        if name not in self.lives:
            raise JobNotFound(
                "there is no such job: Requested resource not found.", code="ValidationException"
            )
        return self._description(self.lives[name])

    def page(self, contains, token):
        self._enter("list")
        end = len(self._order) if token is None else int(token)
        begin = max(0, end - 100)
        jobs = [
            self._listed(self.lives[name])
            for name in reversed(self._order[begin:end])
            if contains in name
        ]
        return Page(jobs=tuple(jobs), token=str(begin) if begin else None)

    def stop(self, name):
        self._enter("stop")
        if name not in self.lives:
            raise JobNotFound(
                "there is no such job: Requested resource not found.", code="ValidationException"
            )
        life = self.lives[name]
        if life.ended_s <= self.clock.now:
            raise ServiceError(
                "stop: ValidationException: the job is in status Completed",
                code="ValidationException",
            )
        if life.asked_s is None:
            life.asked_s = self.clock.now
            life.ended_s = min(life.ended_s, self.clock.now + self.behaviour.stop_s)
            life.started_s = min(life.started_s, life.ended_s)

    def rates(self, names, metric):
        self._enter("metrics")
        now, speed = self.clock.now, self.behaviour.speed
        running = {
            name for name in names if name in self.lives and self.lives[name].started_s <= now
        }
        return {} if speed is None else {name: speed for name in names if name in running}

    # -- what it does

    def _enter(self, operation):
        now = self.clock.now
        self.calls[operation] += 1
        self._land()
        if any(begin <= now < end for begin, end in self.behaviour.silent):
            raise ServiceError(
                f"{operation}: Could not connect to the endpoint URL", is_transient=True
            )
        rate = self.behaviour.rates.get(operation)
        if rate is not None:
            tokens, at = self._tokens.get(operation, (1.0, now))
            tokens = min(max(1.0, rate), tokens + (now - at) * rate)
            self._tokens[operation] = (tokens - 1 if tokens >= 1 else tokens, now)
            if tokens < 1 - 1e-9:
                self.throttled += 1
                raise THROTTLED

    def _land(self):
        for at, row, attempt in [
            landing for landing in self._landing if landing[0] <= self.clock.now
        ]:
            self._landing.remove((at, row, attempt))
            # One that was sent again meanwhile holds the name.
            if attempt.name not in self.lives:
                self._begin(row, attempt, at)

    def _begin(self, row, attempt, at):
        behaviour = self.behaviour
        reason = behaviour.fails.get(row.key, "")
        draw = self._chance.random()
        for key, words in behaviour.fails.items():
            share = key.removeprefix("share:")
            if key.startswith("share:") and draw < float(share):
                reason = reason or words
        factor = 1 + behaviour.spread * (2 * self._chance.random() - 1)
        started, ended = (
            at + behaviour.start_s * factor,
            at + (behaviour.start_s + behaviour.run_s) * factor,
        )
        if behaviour.interrupted_s is not None and behaviour.interrupted_s < ended - started:
            ended += behaviour.ask_at_s
        if sum(life.count for life in self._live()) + attempt.count > behaviour.capacity:
            reason, ended = CAPACITY_ERROR, at + 30
        if reason.startswith("CapacityError"):
            started = ended
        life = Life(
            name=attempt.name,
            row_key=row.key,
            count=attempt.count,
            created_s=at,
            started_s=started,
            ended_s=ended,
            reason=reason,
        )
        self.lives[attempt.name] = life
        self._order.append(attempt.name)

    def _live(self):
        if self.behaviour.capacity == self.behaviour.quota == 10**9:
            return []
        return [life for life in self.lives.values() if life.ended_s > self.clock.now]

    def _listed(self, life):
        now = self.clock.now
        # Most of those that are listed have ended, and are listed in every step.
        if life.listed is not None and life.ended_s <= now:
            return life.listed
        moments = (
            life.created_s,
            life.asked_s or 0,
            life.started_s,
            life.ended_s,
            *self._interruptions(life),
        )
        changed = max(at for at in moments if at <= now)
        listed = Listed(
            name=life.name, status=self._status(life), created_s=life.created_s, changed_s=changed
        )
        life.listed = listed if life.ended_s <= now else None
        return listed

    def _interruptions(self, life):
        at = life.started_s + (self.behaviour.interrupted_s or 0)
        return (at,) if life.started_s < at <= min(self.clock.now, life.ended_s) else ()

    def _status(self, life):
        if life.ended_s > self.clock.now:
            return Status.IN_PROGRESS if life.asked_s is None else Status.STOPPING
        if life.asked_s is not None:
            return Status.STOPPED
        return Status.FAILED if life.reason else Status.COMPLETED

    def billable_s(self, life):
        return round((life.ended_s - life.started_s) * self.behaviour.billed) if life.runs else None

    def _description(self, life):
        status, now = self._status(life), self.clock.now
        secondary = SecondaryStatus.PENDING if now < life.started_s else SecondaryStatus.TRAINING
        phases = [(SecondaryStatus.PENDING, None)]
        if life.runs and now >= life.started_s:
            phases.append((SecondaryStatus.TRAINING, _moment(life.started_s)))
        for at in self._interruptions(life):
            phases += [
                (SecondaryStatus.INTERRUPTED, _moment(at)),
                (SecondaryStatus.TRAINING, _moment(at)),
            ]
        if life.asked_s is not None:
            phases.append((SecondaryStatus.STOPPING, None))
        ended = life.ended_s <= now
        return Description(
            name=life.name,
            arn=f"arn:aws:sagemaker:{self.name}:1:training-job/{life.name}",
            api=TRAINING,
            status=status,
            secondary=SecondaryStatus(status.value) if ended else secondary,
            reason=life.reason if status is Status.FAILED else "",
            created=_moment(life.created_s),
            started=_moment(life.started_s) if life.runs and now >= life.started_s else None,
            ended=_moment(life.ended_s) if ended else None,
            billable_s=self.billable_s(life) if ended else None,
            training_s=round(life.ended_s - life.started_s) if ended and life.runs else None,
            transitions=tuple((phase.value, begin, None) for phase, begin in phases),
        )

    # -- its books

    def usd(self):
        """Return what all its jobs were billed, to a tenth of a cent."""
        return sum(
            (self.billable_s(life) or 0) * life.count * self.behaviour.usd_per_hour / 3600
            for life in self.lives.values()
            if life.ended_s <= self.clock.now
        )


def _moment(seconds):
    return datetime.fromtimestamp(seconds, UTC)


def overlaps(regions):
    """Return the rows of which two jobs lived at one moment, in whichever regions."""
    by_row = {}
    for region in regions:
        for life in region.lives.values():
            by_row.setdefault(life.row_key, []).append((life.created_s, life.ended_s, life.name))
    found = []
    for row, lives in by_row.items():
        lives.sort()
        found += [
            row for first, second in zip(lives, lives[1:], strict=False) if second[0] < first[1]
        ]
    return found


def changed(behaviour, **changes):
    """Return another behaviour that differs in these."""
    return replace(behaviour, **changes)
