"""The life of a job whose instances are simulated: the scenario and chance flow in, the statuses of a job flow out.

::

    Starting ── (start_delay_s) ── Training ── (run_s) ── Uploading ── Completed
        │                             │                          └──── Failed, by the scenario or its own wish
        └── Failed "CapacityError"    ├── Interrupted ── Starting …
                                      └── Stopping ── Stopped

Nothing runs and no thread waits: each turn is a moment of ``Timers``, so that tens of thousands of jobs are as many
entries of one queue. All seconds are of the server's clock, which may run faster than this machine's.
"""

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from raysm.local.instances import Instance
from raysm.local.server.endings import FAILURES, EndReason, TimeLimits, ended
from raysm.local.server.job_status import HasStatus, JobStatus
from raysm.local.server.records import JobRecord
from raysm.local.server.refusals import check_interruption, check_stop
from raysm.local.server.served_apis import served
from raysm.local.server.services import Services
from raysm.local.server.stock import asked_instances
from raysm.local.server.supply import Supply
from raysm.local.shares import drawn

__all__ = ["SimulatedLife"]

STOP_S = 3.0
"""Seconds of a job that is asked to stop until it has: nothing of it has to save anything."""
REFUSAL_S = 30.0
"""Seconds until a job that gets no instances is told so."""
RUN_S = "simulated_run_s"
FAILURE = "simulated_failure"
"""Hyperparameters by which a job says itself what becomes of it."""


class SimulatedLife(HasStatus):
    """Carries one job out; see ``raysm.local.server.life.JobLife``."""

    def __init__(self, services: Services, record: JobRecord) -> None:
        """Take a job whose record was added."""
        self._services = services
        self._clock = services.records.clock
        self._api = record.api
        self._definition = served(record.api).define(record)
        self._scenario = services.scenario.of(record.region)
        self._limits = TimeLimits.of(self._definition)
        self._status = JobStatus(services.records, record)
        self._created_s = record.created_s
        # Of each job by itself, so that a seed repeats it in whatever order the requests arrive.
        self._chance = Random(None if services.scenario.seed is None else f"{services.scenario.seed}/{record.name}")
        self._supply = Supply(services, record, self._chance)
        self._left_s = self._run_s(record)
        self._wanted_s = self._usual_s(record)
        self._training_s = 0.0
        self._running_since_s: float | None = None
        self._turn = 0
        self._attempts = 0
        # Reentrant: the records' own lock is taken within, and a turn may begin the next one.
        self._lock = threading.RLock()

    @property
    def instances(self) -> Mapping[str, Instance]:
        """None: there are no instances to enter."""
        return {}

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return not self._status.final.is_set()

    def start(self) -> None:
        """Begin."""
        with self._lock:
            self._launch()

    def stop(self) -> None:
        """Ask it to end.

        Raises:
            ApiError: It has ended.
        """
        with self._lock:
            check_stop(self.record)
            self._end_early("stop")

    def interrupt(self) -> None:
        """Take its spot capacity away; it starts anew with what it has done.

        Raises:
            ApiError: It does not run, or not on spot capacity.
        """
        with self._lock:
            check_interruption(self.record, spot=self._definition.spot, is_ending=self._running_since_s is None)
            self._interrupted()

    def shut_down(self) -> None:
        """End it at once, since the server ends; it is Failed."""
        with self._lock:
            if self.running:
                self._pause()
                self._finish("Failed", "Failed", f"{self._api.title} job failed", FAILURES["shutdown"])

    # -- its turns

    def _next(self, seconds: float, do: Callable[[], None]) -> None:
        """Have the next turn come in so many seconds of the clock; one that was to come is dropped."""
        self._turn += 1
        turn = self._turn

        def take() -> None:
            with self._lock:
                # A timer that has begun cannot be called back: it finds that it is not its turn any more.
                if turn == self._turn and self.running:
                    do()

        self._services.timers.after(self._clock.takes_s(seconds), take)

    def _launch(self) -> None:
        delay_s = self._supply.draw_start_s()
        if not self._supply.take():
            self._next(min(REFUSAL_S, self._left_of_wait_s()), lambda: self._finish(*self._supply.lack()))
            return
        if not self._attempts:
            self._settle()
        wait_s = self._left_of_wait_s()
        if delay_s > wait_s:
            self._next(wait_s, lambda: self._end_early(self._exceeded()))
        else:
            self._next(delay_s, self._train)

    def _settle(self) -> None:
        """Take as long as the type of instance does that it has got: of a choice that is known only now."""
        wanted_s, usual_s = self._wanted_s, self._usual_s(self.record)
        if usual_s != wanted_s and not self._own(self.record, RUN_S):
            self._left_s = self._left_s * usual_s / wanted_s if wanted_s else usual_s

    def _left_of_wait_s(self) -> float:
        # Pending is the wait for the first instances alone; the other one counts interruptions, too.
        limits = (self._limits.max_wait_s, self._limits.max_pending_s if not self._attempts else None)
        waited_s = self._clock.now() - self._created_s
        return max(0.0, min([limit - waited_s for limit in limits if limit is not None], default=math.inf))

    def _exceeded(self) -> EndReason:
        is_wait = self._limits.max_wait_s is not None and self._clock.now() - self._created_s >= self._limits.max_wait_s
        return "wait" if is_wait else "pending"

    def _train(self) -> None:
        self._attempts += 1
        self._status.enter("Downloading", "Downloading input data", attempts=self._attempts)
        self._status.enter_training()
        self._running_since_s = self._clock.now()
        left_of_runtime_s = self._limits.max_runtime_s - self._training_s
        interrupted_s = self._supply.draw_interruption_s(spot=self._definition.spot)
        # Whichever comes first: its capacity is taken, its time is over, or it is done.
        if interrupted_s < min(self._left_s, left_of_runtime_s):
            self._next(interrupted_s, self._interrupted)
        elif left_of_runtime_s < self._left_s:
            self._next(left_of_runtime_s, lambda: self._end_early("runtime"))
        else:
            self._next(self._left_s, self._done)

    def _interrupted(self) -> None:
        self._pause()
        self._status.enter("Interrupted", f"{self._api.title} job interrupted: spot capacity was taken back")
        self._status.enter("Starting", f"Starting the {self._api.kind} job again after an interruption")
        self._launch()

    def _done(self) -> None:
        self._pause()
        reason = self._failure()
        self._status.enter("Uploading", f"Uploading generated {self._api.kind} model")
        if reason:
            self._finish("Failed", "Failed", f"{self._api.title} job failed", reason)
        else:
            self._finish("Completed", "Completed", f"{self._api.title} job completed")

    def _end_early(self, reason: EndReason) -> None:
        if reason in FAILURES:
            self._finish("Failed", "Failed", f"{self._api.title} job failed", FAILURES[reason])
            return
        self._status.enter_stopping()
        secondary, message = ended(reason, self._api.title)

        def finish() -> None:
            self._pause()
            self._finish("Stopped", secondary, message)

        self._next(STOP_S, finish)

    # -- what it counts

    def _pause(self) -> None:
        """Count what has run, and give the instances back."""
        if self._running_since_s is not None:
            ran_s = self._clock.now() - self._running_since_s
            # By the scenario's own number where it ran to its end: a timer that is late is no work.
            ran_s = min(ran_s, self._left_s)
            self._training_s, self._left_s = self._training_s + ran_s, self._left_s - ran_s
            self._running_since_s = None
        self._supply.give_back()

    def _finish(self, status: str, secondary: str, message: str, reason: str | None = None) -> None:
        self._pause()
        self._turn += 1
        artifacts = self._definition.artifacts if status == "Completed" else None
        self._status.finish(
            status,
            secondary,
            message,
            reason,
            training_s=self._training_s,
            artifacts=artifacts,
            metrics=tuple(self._metrics()) if status == "Completed" else (),
        )

    # -- what becomes of it

    def _metrics(self) -> Iterator[Mapping[str, Any]]:
        for definition in self._definition.metrics:
            # Of each metric by itself: how long it runs, and how it ends, is not to depend on what it reports.
            chance = Random(f"{self._services.scenario.seed}/{self.record.name}/{definition['Name']}")
            yield {"MetricName": definition["Name"], "Value": chance.random(), "Timestamp": self._clock.now()}

    def _run_s(self, record: JobRecord) -> float:
        simulated = self._scenario.simulated
        text = self._own(record, RUN_S)
        if text:
            return float(text)
        return drawn(self._usual_s(record), simulated.spread, self._chance)

    def _usual_s(self, record: JobRecord) -> float:
        simulated = self._scenario.simulated
        types = asked_instances(record.api, record.request)
        # A cluster of several types is as fast as its slowest one.
        return max(simulated.run_s_on.get(name, simulated.run_s) for name in types)

    def _failure(self) -> str:
        simulated = self._scenario.simulated
        failure = self._own(self.record, FAILURE)
        return failure or (simulated.failure if self._chance.random() < simulated.failed else "")

    def _own(self, record: JobRecord, name: str) -> str:
        return str((record.request.get("HyperParameters") or {}).get(name) or "")
