"""The life of a job with simulated instances.

Nothing runs; the scenario decides how long it takes and how it ends.

::

    Starting ── (start_delay_s) ── Training ── (run_s) ── Uploading ── Completed
        │                             │                          └──── Failed
        └── Failed "CapacityError"    ├── Interrupted ── Starting …
                                      └── Stopping ── Stopped

No thread waits for a job: each step is an entry in ``Timers``, so that tens of thousands of jobs
run at once. All seconds are those of the server's clock, which may run faster than real time.
"""

import math
import threading
from collections.abc import Callable, Mapping

from raysm.local.instances import Instance
from raysm.local.server.definitions import EndReason
from raysm.local.server.job_status import (
    FAILURES,
    JobLife,
    check_interruption,
    check_stop,
    describe_end,
)
from raysm.local.server.market import INSUFFICIENT, draw_interruption_s
from raysm.local.server.records import JobRecord
from raysm.local.server.services import Services

STOP_S = 3.0
REFUSAL_S = 30.0


class SimulatedLife(JobLife):
    def __init__(self, services: Services, record: JobRecord) -> None:
        super().__init__(services, record)
        self._clock = services.records.clock
        self._simulated = services.scenario.of(record.region).simulated
        self._left_s = self._simulated.run_s
        self._training_s = 0.0
        self._running_since_s: float | None = None
        self._step = 0
        self._attempts = 0
        # Reentrant: a step may schedule the next one.
        self._lock = threading.RLock()

    @property
    def instances(self) -> Mapping[str, Instance]:
        return {}

    @property
    def running(self) -> bool:
        return not self.final.is_set()

    def start(self) -> None:
        with self._lock:
            self._launch()

    def stop(self) -> None:
        with self._lock:
            check_stop(self.record)
            self._end_early("stop")

    def interrupt(self) -> None:
        with self._lock:
            check_interruption(
                self.record, spot=self._definition.spot, is_ending=self._running_since_s is None
            )
            self._interrupt_and_restart()

    def shut_down(self) -> None:
        with self._lock:
            if self.running:
                self._fail(FAILURES["shutdown"])

    def _schedule(self, seconds: float, do: Callable[[], None]) -> None:
        """Run ``do`` as the next step, in place of one that was scheduled before."""
        self._step += 1
        step = self._step

        def run_step() -> None:
            with self._lock:
                if step == self._step and self.running:
                    do()

        self._services.timers.after(self._clock.takes_s(seconds), run_step)

    def _launch(self) -> None:
        delay_s = self._capacity.start_delay_s
        wait_s = self._left_of_wait_s()
        if not self._services.stock.take(self._created, self._chance):
            self._schedule(min(REFUSAL_S, wait_s), lambda: self._fail(INSUFFICIENT))
        elif delay_s > wait_s:
            is_pending = self._definition.max_wait_s is None
            self._schedule(wait_s, lambda: self._end_early("pending" if is_pending else "wait"))
        else:
            self._schedule(delay_s, self._train)

    def _left_of_wait_s(self) -> float:
        # MaxPendingTime covers only the wait for the first instances; MaxWaitTime covers
        # interruptions too.
        limits = (
            self._definition.max_wait_s,
            self._definition.max_pending_s if not self._attempts else None,
        )
        waited_s = self._clock.now() - self._created.created_s
        return max(
            0.0, min([limit - waited_s for limit in limits if limit is not None], default=math.inf)
        )

    def _train(self) -> None:
        self._attempts += 1
        self.enter("Downloading", "Downloading input data", attempts=self._attempts)
        self.enter_training()
        self._running_since_s = self._clock.now()
        runtime_s = self._definition.max_runtime_s - self._training_s
        interrupted_s = draw_interruption_s(
            self._capacity, self._chance, spot=self._definition.spot
        )
        if interrupted_s < min(self._left_s, runtime_s):
            self._schedule(interrupted_s, self._interrupt_and_restart)
        elif runtime_s < self._left_s:
            self._schedule(runtime_s, lambda: self._end_early("runtime"))
        else:
            self._schedule(self._left_s, self._complete)

    def _interrupt_and_restart(self) -> None:
        self._pause()
        self.enter(
            "Interrupted", f"{self._api.title} job interrupted: spot capacity was taken back"
        )
        self.enter("Starting", f"Starting the {self._api.kind} job again after an interruption")
        self._launch()

    def _complete(self) -> None:
        self._pause()
        self.enter("Uploading", f"Uploading generated {self._api.kind} model")
        if self._chance.random() < self._simulated.failed:
            self._fail(self._simulated.failure)
        else:
            self._finish("Completed", "Completed", f"{self._api.title} job completed")

    def _end_early(self, reason: EndReason) -> None:
        if reason in FAILURES:
            self._fail(FAILURES[reason])
            return
        self.enter_stopping()
        secondary, message = describe_end(reason, self._api.title)
        self._schedule(STOP_S, lambda: self._finish("Stopped", secondary, message))

    def _pause(self) -> None:
        """Count the time that it ran, and return its instances."""
        if self._running_since_s is not None:
            # The delay of a late timer does not count as work.
            ran_s = min(self._clock.now() - self._running_since_s, self._left_s)
            self._training_s = self._training_s + ran_s
            self._left_s = self._left_s - ran_s
            self._running_since_s = None
        self._services.stock.give_back(self._created)

    def _finish(self, status: str, secondary: str, message: str, reason: str | None = None) -> None:
        self._pause()
        self._step += 1
        artifacts = self._definition.artifacts if status == "Completed" else None
        self.finish(
            status, secondary, message, reason, training_s=self._training_s, artifacts=artifacts
        )
