"""A grid whose processes interleave: controllers, a user's commands, and a service that misbehaves.

Two or more controllers of one grid, and commands that add, correct, retry and stop rows and change
the budget, are suspended and killed at any effect, under clocks that differ and jump. The service
loses answers, carries calls out late, forgets jobs, stops them late, and is silent for hours. When
all that is over, one undisturbed controller runs the grid to its end, and ``broken_promises`` looks
at what became of it.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from raysm.core.client.job.description import Description, SecondaryStatus, Status
from raysm.core.protocol.job_api import TRAINING
from raysm.errors import JobNotFound, ServiceError
from raysm.features.grid.attempt import Attempt
from raysm.features.grid.controller import Controller
from raysm.features.grid.corrections import correct
from raysm.features.grid.limiter import Bucket, Limiter, Rate
from raysm.features.grid.market import Offer, Place
from raysm.features.grid.placement import Placement
from raysm.features.grid.region import Listed, Page
from raysm.features.grid.row import RETRYABLE_STATES, Row, RowState
from raysm.features.grid.rules import Rules
from raysm.features.grid.store.database import LeaseLost
from raysm.features.grid.store.store import Store
from tests.simulate.schedule import Killed, Process, Schedule

TYPE = "ml.m5.large"
USD_PER_HOUR = 3.6
"""A tenth of a cent a second, so that amounts are easy to read."""

FAST = {
    name: Rate(per_s=50, burst=50) for name in ("create", "list", "describe", "stop", "metrics")
}

STOP_S = 120.0
"""The longest time that the service gives a job to save its work; it is billed."""

CAPACITY = "CapacityError: Unable to provision requested ML compute capacity."
USER = "AlgorithmError: RuntimeError: CUDA error"
SERVICE = "InternalServerError: We encountered an internal error."

DISTURBED_S = 3600.0
"""Seconds in which processes are suspended and killed, and the service misbehaves."""

MOST_S = 40 * 86_400.0
"""Seconds after which a grid that has not ended is stuck."""

IDLE_S = 900.0
"""Seconds for which a healthy region may have no job while a row waits that it could take."""


@dataclass(kw_only=True)
class Behaviour:
    """What a region does wrong; shares are of calls or jobs."""

    lost: float = 0.0
    """Creates that are carried out, and whose answers are lost."""
    late: float = 0.0
    """Creates that are carried out after their callers gave up."""
    unanswered: float = 0.0
    """Other calls whose answers are lost."""
    latency_s: float = 0.0
    vanishing: float = 0.0
    """Jobs that the service no longer knows after a while, though they ran and are billed."""
    overlong: float = 0.0
    """Jobs that run to their limit."""
    failing: float = 0.0
    reason: str = USER
    quota: int = 10**6
    silent: tuple[tuple[float, float], ...] = ()
    """When the region answers nothing."""

    @property
    def is_healthy(self) -> bool:
        """Whether the region could take a job at any time."""
        return not self.silent and self.quota == 10**6 and self.reason == USER


@dataclass(kw_only=True)
class Job:
    """One job, as the service knows it."""

    name: str
    row_key: str
    parameters: dict
    sender: str
    created_s: float
    started_s: float
    ended_s: float
    limit_s: float
    reason: str = ""
    asked_s: float | None = None
    vanishes_s: float = float("inf")
    is_unowned: bool = False
    """Whether its sender had lost the lease when the service took it."""
    is_answered: bool = False
    """Whether its sender learned that the service took it."""

    @property
    def is_overlong(self) -> bool:
        return self.asked_s is None and self.ended_s > self.started_s + self.limit_s

    def usd(self, now: float) -> float:
        seconds = min(self.ended_s, now) - self.started_s
        return max(0.0, seconds) * USD_PER_HOUR / 3600


class Region:
    """One region of the service; see ``raysm.features.grid.region.Region``."""

    def __init__(self, name: str, schedule: Schedule, behaviour: Behaviour) -> None:
        self.name, self.behaviour = name, behaviour
        self.jobs: dict[str, Job] = {}
        self.owner_of_lease = lambda: ""
        self._schedule = schedule
        self._chance = random.Random(f"{schedule.chance.random()}/{name}")
        self._landing: list[tuple[float, Row, Attempt, str]] = []

    def create(self, row: Row, attempt: Attempt) -> None:
        self._enter("create")
        behaviour, draw, now = self.behaviour, self._chance.random(), self._schedule.now
        sender = self._schedule.process.name
        if attempt.name in self.jobs:
            return
        if draw < behaviour.late:
            self._landing.append((now + self._chance.uniform(1, 100), row, attempt, sender))
            raise self._lost("create")
        used = sum(job.ended_s > now for job in self.jobs.values())
        if used >= behaviour.quota:
            raise ServiceError(
                f"create: ResourceLimitExceeded: The account-level service limit '{TYPE} for "
                f"training job usage' is {behaviour.quota} Instances, with current utilization of "
                f"{used} Instances and a request delta of 1 Instances.",
                code="ResourceLimitExceeded",
            )
        self._begin(row, attempt, sender, now)
        if draw < behaviour.late + behaviour.lost:
            raise self._lost("create")
        self.jobs[attempt.name].is_answered = True

    def describe(self, name: str) -> Description:
        self._enter("describe")
        return self._description(self._job(name))

    def page(self, contains: str, token: str | None) -> Page:
        self._enter("list")
        jobs = sorted(self._known(), key=lambda job: (job.created_s, job.name), reverse=True)
        begin = int(token or 0)
        page = [self._listed(job) for job in jobs[begin : begin + 20] if contains in job.name]
        more = begin + 20 < len(jobs)
        return Page(jobs=tuple(page), token=str(begin + 20) if more else None)

    def stop(self, name: str) -> None:
        self._enter("stop")
        job, now = self._job(name), self._schedule.now
        if job.ended_s <= now:
            raise ServiceError("stop: the job has ended", code="ValidationException")
        if job.asked_s is None:
            job.asked_s = now
            job.ended_s = min(job.ended_s, now + self._chance.choice((1.0, STOP_S)))
            job.started_s = min(job.started_s, job.ended_s)

    def rates(self, names: list[str], metric: str) -> dict[str, float]:
        return {}

    def advance(self) -> None:
        """Carry out the calls whose time has come."""
        now = self._schedule.now
        for landing in [each for each in self._landing if each[0] <= now]:
            self._landing.remove(landing)
            at_s, row, attempt, sender = landing
            if attempt.name not in self.jobs:
                self._begin(row, attempt, sender, at_s)

    def _enter(self, operation: str) -> None:
        behaviour = self.behaviour
        if behaviour.latency_s and self._chance.random() < 0.2:
            self._schedule.sleep(self._chance.uniform(0, behaviour.latency_s))
        self.advance()
        if any(begin <= self._schedule.now < end for begin, end in behaviour.silent):
            raise self._lost(operation)
        if operation != "create" and self._chance.random() < behaviour.unanswered:
            raise self._lost(operation)

    def _lost(self, operation: str) -> ServiceError:
        return ServiceError(f"{operation}: Connection was closed", is_transient=True)

    def _begin(self, row: Row, attempt: Attempt, sender: str, at_s: float) -> None:
        chance, behaviour = self._chance, self.behaviour
        started_s = at_s + chance.uniform(5, 60)
        limit_s = float(attempt.max_runtime_s)
        job = Job(
            name=attempt.name,
            row_key=row.key,
            parameters=dict(row.parameters),
            sender=sender,
            created_s=at_s,
            started_s=started_s,
            ended_s=started_s + chance.uniform(0.1, 0.9) * limit_s,
            limit_s=limit_s,
            is_unowned=self.owner_of_lease() != sender,
        )
        if chance.random() < behaviour.overlong:
            job.ended_s = started_s + limit_s + chance.choice((1.0, STOP_S))
        elif chance.random() < behaviour.failing:
            job.reason = behaviour.reason
            if job.reason == CAPACITY:
                job.started_s = job.ended_s = at_s + 30
        if chance.random() < behaviour.vanishing:
            job.vanishes_s = started_s + 1
        self.jobs[job.name] = job

    def _known(self) -> Iterator[Job]:
        return (job for job in self.jobs.values() if job.vanishes_s > self._schedule.now)

    def _job(self, name: str) -> Job:
        job = self.jobs.get(name)
        if job is None or job.vanishes_s <= self._schedule.now:
            raise JobNotFound("Requested resource not found.", code="ValidationException")
        return job

    def _status(self, job: Job) -> Status:
        if job.ended_s > self._schedule.now:
            return Status.IN_PROGRESS if job.asked_s is None else Status.STOPPING
        if job.asked_s is not None or job.is_overlong:
            return Status.STOPPED
        return Status.FAILED if job.reason else Status.COMPLETED

    def _listed(self, job: Job) -> Listed:
        moments = (job.created_s, job.asked_s or 0.0, job.started_s, job.ended_s)
        changed_s = max(at_s for at_s in moments if at_s <= self._schedule.now)
        return Listed(
            name=job.name, status=self._status(job), created_s=job.created_s, changed_s=changed_s
        )

    def _description(self, job: Job) -> Description:
        now, status = self._schedule.now, self._status(job)
        has_ended = job.ended_s <= now
        runs = job.started_s < job.ended_s and job.started_s <= now
        if has_ended and job.is_overlong:
            secondary = SecondaryStatus.MAX_RUNTIME_EXCEEDED
        elif has_ended:
            secondary = SecondaryStatus(status.value)
        else:
            secondary = SecondaryStatus.TRAINING if runs else SecondaryStatus.PENDING
        phases = [("Pending", None, None)]
        if runs:
            phases.append(("Training", _moment(job.started_s), None))
        if job.asked_s is not None:
            phases.append(("Stopping", None, None))
        seconds = round(job.ended_s - job.started_s) if has_ended and runs else None
        return Description(
            name=job.name,
            arn=f"arn:aws:sagemaker:{self.name}:1:training-job/{job.name}",
            api=TRAINING,
            status=status,
            secondary=secondary,
            reason=job.reason if status is Status.FAILED else "",
            created=_moment(job.created_s),
            started=_moment(job.started_s) if runs else None,
            ended=_moment(job.ended_s) if has_ended else None,
            billable_s=seconds,
            training_s=seconds,
            transitions=tuple(phases),
        )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@dataclass
class Idle:
    """How long a healthy region had no job while a row waited that it could take."""

    seconds: float = 0.0
    longest_s: float = 0.0
    at_s: float = field(default=float("nan"))


class Buckets(Limiter):
    """A limiter whose buckets no other process shares; SQL took a fifth of the time of a seed."""

    def __init__(self) -> None:
        self.moment = None
        self._rates = FAST
        self._account = ""
        self._buckets: dict[str, Bucket] = {}

    def close(self) -> None:
        pass

    def together(self) -> AbstractContextManager[None]:
        # Nothing reads the buckets of a controller that an exception has ended.
        return nullcontext()

    @contextmanager
    def _bucket(
        self, region: str, operation: str, now: float
    ) -> Iterator[tuple[Bucket, Callable[[Bucket], None]]]:
        name = self._name(region, operation)
        yield self._at(region, operation, now), partial(self._buckets.__setitem__, name)

    def _at(self, region: str, operation: str, now: float) -> Bucket:
        cap = self._rates[operation]
        name = self._name(region, operation)
        stored = self._buckets.get(name)
        if stored is None:
            return Bucket(rate=cap.per_s, tokens=1.0, at_s=now, refused_s=now)
        if stored.at_s > now:
            self._buckets[name] = replace(stored, at_s=now)
        return stored.at(now, cap)


class GridFile:
    """A grid's file, in memory, with the connections to it.

    Later processes and seeds use connections again: to open one and to prepare its statements took
    a third of the time of a seed.
    """

    def __init__(self) -> None:
        # The file is gone when its last connection is closed.
        self._path = f"file:/{id(self)}?vfs=memdb"
        self.observer = Store(self._path)
        self._unused: list[Store] = []

    def open(self, between: Callable[[str], None]) -> Store:
        """Open the file as a new process does."""
        store = self._unused.pop() if self._unused else Store(self._path)
        store.database.fence = 0
        store.database.between = between
        return store

    def close(self, store: Store) -> None:
        """Close the file as a killed process does: its lease stays."""
        assert not store.database.connection.in_transaction
        self._unused.append(store)

    def delete(self) -> None:
        for store in (self.observer, *self._unused):
            store.database.close()

    def clear(self) -> None:
        """Make the file as good as new."""
        execute = self.observer.database.connection.execute
        tables = execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        execute("BEGIN IMMEDIATE")
        for (name,) in tables:
            execute(f'DELETE FROM "{name}"')
        execute("COMMIT")


class Simulation:
    """One run of one seed."""

    def __init__(self, file: GridFile, seed: int) -> None:
        self.file, self.seed = file, seed
        self.schedule = Schedule(seed)
        chance = self.chance = self.schedule.chance
        self.began_s = self.schedule.now
        self.schedule.suspend_share = chance.choice((0.0, 0.01, 0.05, 0.1))
        self.schedule.on_suspend = self._meanwhile
        self.schedule.kill_share = chance.choice((0.0, 0.005, 0.02))
        self.schedule.pauses_s = chance.choice(((1.0,), (1.0, 40.0), (40.0, 400.0, 5000.0)))
        self.regions = {
            name: Region(name, self.schedule, self._behaviour())
            for name in ("us-east-1", "eu-west-1")[: chance.choice((1, 2, 2))]
        }
        self.budget_usd = chance.choice((None, None, chance.uniform(0.5, 6.0)))
        self.rules = Rules(
            brake=0,
            retries=chance.choice((0, 2)),
            parallel=chance.choice((1, 3, 50)),
            max_cost=self.budget_usd,
            give_up_s=20 * 86_400.0,
        )
        self.max_budget_usd = self.budget_usd
        self.accepted: set[str] = set()
        self.idle = {name: Idle() for name in self.regions}
        self._rows = 0
        self._owners: dict[str, str] = {}
        self._is_calm = False

    def _behaviour(self) -> Behaviour:
        chance = self.chance
        if chance.random() < 0.3:
            return Behaviour(overlong=chance.choice((0.0, 0.3)))
        silent = ()
        if chance.random() < 0.4:
            begin_s = self.schedule.now + chance.uniform(0, 3600)
            silent = ((begin_s, begin_s + chance.choice((60.0, 1800.0, 7200.0))),)
        return Behaviour(
            lost=chance.choice((0.0, 0.3)),
            late=chance.choice((0.0, 0.2)),
            unanswered=chance.choice((0.0, 0.0, 0.05)),
            latency_s=chance.choice((0.0, 5.0, 90.0)),
            vanishing=chance.choice((0.0, 0.0, 0.2)),
            overlong=chance.choice((0.0, 0.3)),
            failing=chance.choice((0.0, 0.3)),
            reason=chance.choice((USER, CAPACITY, SERVICE)),
            quota=chance.choice((1, 1, 10**6)),
            silent=silent,
        )

    # -- processes

    def run(self) -> list[str]:
        """Run the seed; return the promises that it breaks, each in a line."""
        schedule, chance = self.schedule, self.chance
        first = Process(name="run-0", is_disturbed=False)
        schedule.start(self._make, first)
        schedule.run(schedule.now)
        for number in range(1, chance.choice((2, 3, 4))):
            process = Process(
                name=f"run-{number}", offset_s=chance.choice((0.0, 0.0, chance.uniform(-60, 60)))
            )
            after_s = chance.uniform(0, 300) if number > 1 else 0.0
            schedule.start(lambda process=process: self._controller(process), process, after_s)
        self._commands = chance.choice((0, 2, 4, 8))
        for _ in range(self._commands // 2):
            self._start_command(chance.uniform(0, DISTURBED_S * chance.random()))
        try:
            schedule.run(self.began_s + DISTURBED_S)
            self._calm_down()
            schedule.run(self.began_s + MOST_S)
            return list(self._broken_promises())
        except Exception as error:  # any error of a process is a finding
            return [f"{type(error).__name__}: {error}"]

    def _start_command(self, after_s: float) -> None:
        self._commands -= 1
        process = Process(name=f"user-{self._commands}")
        self.schedule.start(lambda: self._command(process), process, after_s)

    def _meanwhile(self) -> None:
        """Let the user act while a process is suspended, which is when most promises break."""
        if self._commands > 0 and not self._is_calm and self.chance.random() < 0.5:
            self._start_command(0.1)

    def _calm_down(self) -> None:
        """Let nothing more be disturbed, and start a controller that runs the grid to its end."""
        self._is_calm = True
        self.schedule.suspend_share = self.schedule.kill_share = 0.0
        for region in self.regions.values():
            quota = region.behaviour.quota
            silent = region.behaviour.silent
            region.behaviour = Behaviour(quota=quota, silent=silent)
        last = Process(name="last", is_disturbed=False)
        self.schedule.start(lambda: self._run_to_the_end(last), last)

    def _make(self) -> None:
        store = self._open()
        store.make("g", rules=self.rules, now=self.schedule.clock())
        # Otherwise the names of jobs, and so the order of some queries, would differ between runs.
        store.database.connection.execute("UPDATE grid SET run = 'aaaaaa'")
        self._add(store, self.chance.randint(1, 6))
        self.file.close(store)
        for region in self.regions.values():
            region.owner_of_lease = self._owner_of_lease

    def _open(self) -> Store:
        return self.file.open(self.schedule.point)

    def _new_row(self) -> Row:
        position, self._rows = self._rows, self._rows + 1
        return Row(
            key=f"row-{position}",
            position=position,
            parameters={"lr": position},
            max_runtime_s=self.chance.choice((200, 600)),
        )

    def _add(self, store: Store, count: int) -> None:
        rows = [self._new_row() for _ in range(count)]
        store.add(rows)
        self.accepted |= {row.key for row in rows}
        self.schedule.note(f"added {[row.key for row in rows]}")

    def _controller(self, process: Process) -> None:
        """Run the grid as ``raysm grid run`` does, again after a kill."""
        while not self._is_calm:
            store = self._open()
            try:
                self._steps(store, process)
                return
            except LeaseLost:
                pass
            except Killed:
                # Another process has another owner's name.
                process.name += "'"
            finally:
                self._close(store)
            self.schedule.sleep(self.chance.uniform(0, 200))

    def _close(self, store: Store) -> None:
        was, self.schedule.process.is_disturbed = self.schedule.process.is_disturbed, False
        self.file.close(store)
        self.schedule.process.is_disturbed = was

    def _steps(self, store: Store, process: Process) -> None:
        owner = process.name
        limiter = Buckets()
        places = [Place(region=name, instance_type=TYPE) for name in self.regions]
        controller = Controller(
            store,
            self.regions,
            Placement(offers=[Offer(place=place, usd_per_hour=USD_PER_HOUR) for place in places]),
            limiter,
            owner=owner,
        )
        while True:
            was_s = self.schedule.now
            wait_s = controller.step(self.schedule.clock())
            if wait_s is None:
                store.database.release_lease()
                return
            self._watch_idle(store, self.schedule.now - was_s + wait_s)
            self.schedule.sleep(wait_s)
            if not self._is_calm and self.chance.random() < 0.002:
                process.offset_s += self.chance.choice((-3600.0, -30.0, 30.0, 3600.0))
                self.schedule.note(f"the clock of {process.name} jumps")

    def _owner_of_lease(self) -> str:
        row = self.file.observer.database.lease()
        return "" if row is None else str(row["owner"])

    def _run_to_the_end(self, process: Process) -> None:
        while True:
            store = self._open()
            try:
                # As the user does: the command adds all rows of the source again.
                if store.grid().state == "paused":
                    store.go_on(self.schedule.clock())
                self._steps(store, process)
                return
            except LeaseLost:
                pass
            finally:
                self._close(store)
            self.schedule.sleep(35)

    def _command(self, process: Process) -> None:
        store = self._open()
        try:
            self._act(store)
            # A command that adds or retries rows then runs the grid.
            self._steps(store, process)
        except LeaseLost:
            pass
        finally:
            self._close(store)

    def _act(self, store: Store) -> None:
        chance, now = self.chance, self.schedule.clock()
        kind = chance.choice(("add", "add", "correct", "correct", "retry", "stop", "budget"))
        self.schedule.note(f"{self.schedule.process.name}: {kind}")
        if kind == "add":
            self._add(store, chance.randint(1, 2))
        elif kind == "correct":
            records = list(store.rows.all())
            # Mostly one that a suspended controller may be about to send.
            waiting = [each for each in records if each.state is RowState.WAITING]
            row = chance.choice(waiting if waiting and chance.random() < 0.7 else records).row
            correct(store, [replace(row, parameters={"lr": chance.random()})])
        elif kind == "retry":
            store.requeue(RETRYABLE_STATES, now)
        elif kind == "stop" and chance.random() < 0.3:
            store.change_state("stopping", now, fenced=False)
        elif kind == "budget" and self.max_budget_usd is not None:
            budget_usd = chance.uniform(0.5, 8.0)
            self.max_budget_usd = max(self.max_budget_usd, budget_usd)
            store.change_rules(replace(self.rules, max_cost=budget_usd))

    # -- promises

    def _watch_idle(self, store: Store, seconds: float) -> None:
        """Count how long healthy regions have nothing to do while a row could run there."""
        grid = store.grid()
        is_limited = (
            grid.rules.max_cost is not None or store.attempts.open_count() >= grid.rules.parallel
        )
        for name, region in self.regions.items():
            idle = self.idle[name]
            has_jobs = any(job.ended_s > self.schedule.now for job in region.jobs.values())
            if is_limited or has_jobs or grid.state != "open" or not region.behaviour.is_healthy:
                idle.seconds = 0.0
                continue
            if not self._could_run(store, name):
                idle.seconds = 0.0
                continue
            idle.seconds += min(seconds, 60.0)
            if idle.seconds > idle.longest_s:
                idle.longest_s, idle.at_s = idle.seconds, self.schedule.now - self.began_s

    def _could_run(self, store: Store, region: str) -> bool:
        now = self.schedule.clock()
        ready = {
            each.row.key
            for shape in store.rows.shapes()
            for each in store.rows.waiting(shape, now, 1000)
        }
        for record in store.rows.all():
            attempts = store.attempts.of_row(record.row.key)
            bound = {attempt.region for attempt in attempts if attempt.ending == "TIME"}
            if bound and region not in bound:
                continue
            if record.row.key in ready:
                return True
            last = attempts[-1] if attempts else None
            if (
                last is not None
                and last.state == "intended"
                and not last.calls
                and not last.is_doubtful
            ):
                return True
        return False

    def _broken_promises(self) -> Iterator[str]:
        now = self.schedule.now
        for region in self.regions.values():
            region.advance()
        yield from self._broken_in(self.file.observer, now)

    def _broken_in(self, store: Store, now: float) -> Iterator[str]:
        grid, states = store.grid(), store.rows.states()
        jobs = [job for region in self.regions.values() for job in region.jobs.values()]
        has_ended = grid.state == "closed" or (
            grid.state == "paused" and not store.attempts.open_count()
        )
        if not has_ended:
            yield f"stuck: the grid is {grid.state}, its rows are {states}"
        if grid.state == "closed" and set(states) & {"waiting", "placed"}:
            yield f"lost row: the grid is closed, its rows are {states}"
        if lost := self.accepted - {record.row.key for record in store.rows.all()}:
            yield f"lost row: {sorted(lost)} were accepted and are not in the store"
        yield from self._wrong_results(store)
        yield from _paid_twice(jobs)
        for job in jobs:
            attempt = store.attempts.find(job.name)
            is_open = attempt is not None and attempt.state != "ended"
            if job.ended_s > now and job.asked_s is None and not is_open and has_ended:
                if job.vanishes_s == float("inf"):
                    yield f"unwatched job: {job.name} of {job.sender} runs, and the grid is {grid.state}"
            if job.is_unowned and job.is_answered and self._is_unknown(store, job):
                yield f"unwatched job: {job.name} of {job.sender}, who had lost the lease; nobody stopped it"
        spent_usd = sum(
            job.usd(now)
            for job in jobs
            if not job.is_unowned and not self._was_never_seen(store, job)
        )
        booked_usd = store.costs.money(now).spent_usd
        if booked_usd < spent_usd - 0.01 and has_ended:
            yield f"uncounted cost: {spent_usd:.2f} USD were billed, the store says {booked_usd:.2f}"
        if self.max_budget_usd is not None and spent_usd > self.max_budget_usd + 0.01:
            yield f"budget exceeded: {spent_usd:.2f} USD of {self.max_budget_usd:.2f}"
        for name, idle in self.idle.items():
            if idle.longest_s > IDLE_S:
                yield f"idle place: {name} for {idle.longest_s:.0f} s at {idle.at_s:.0f} s"

    def _is_unknown(self, store: Store, job: Job) -> bool:
        """Whether a job ran to its end, though the store does not know that it was sent."""
        if job.asked_s is not None or job.vanishes_s < float("inf"):
            return False
        attempt = store.attempts.find(job.name)
        is_counted = attempt is not None and (
            attempt.state != "ended" or attempt.sent_s is not None
        )
        return not is_counted and store.orphans.find(job.name) is None

    def _was_never_seen(self, store: Store, job: Job) -> bool:
        """Whether a job was made late, after its call was refused, and forgotten before it was listed.

        Nobody can know of such a job; the page of promises admits its cost.
        """
        attempt = store.attempts.find(job.name)
        return job.vanishes_s < float("inf") and attempt is not None and attempt.sent_s is None

    def _wrong_results(self, store: Store) -> Iterator[str]:
        for record in store.rows.all(RowState.DONE):
            done = [each for each in store.attempts.of_row(record.row.key) if each.ending == "OK"]
            if len(done) != 1:
                yield f"wrong result: {record.row.key} is done {len(done)} times"
                continue
            job = self.regions[done[0].region].jobs.get(done[0].name)
            if job is None or job.parameters != dict(record.row.parameters):
                ran = "nothing" if job is None else job.parameters
                yield (
                    f"wrong result: {record.row.key} is done with {dict(record.row.parameters)} "
                    f"in the store, and {ran} ran"
                )


def _paid_twice(jobs: list[Job]) -> Iterator[str]:
    """Find rows of which two jobs ran at one moment; stopped ones, vanished ones and unowned ones do not count."""
    by_row: dict[str, list[Job]] = {}
    for job in jobs:
        if job.asked_s is None and job.vanishes_s == float("inf") and not job.is_unowned:
            by_row.setdefault(job.row_key, []).append(job)
    for row, own in by_row.items():
        own.sort(key=lambda job: job.created_s)
        for first, second in zip(own, own[1:], strict=False):
            if second.created_s < first.ended_s:
                yield f"paid twice: {row} by {first.name} and {second.name}"
