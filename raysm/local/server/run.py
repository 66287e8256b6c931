"""The life of one job, from its request to its last status, in a thread of its own.

::

    Starting ── Pending (until it is its turn) ── Downloading ── Training ── Uploading ── Completed
                                                      ▲             │            └─────── Failed
        Starting ◄── Interrupted ◄────────────────────┴─────────────┤
                                              Stopping ◄────────────┘──── Uploading ───── Stopped …

Processing jobs have the same life, but their API shows only the status.
"""

import contextlib
import math
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from raysm.core.protocol.names import NOT_KEPT
from raysm.core.protocol.store import make_folder
from raysm.errors import InvalidRequest, RaysmError
from raysm.local.instances import Instance
from raysm.local.job_spec import GracePeriods, JobSpec
from raysm.local.local_job import LocalJob, Outcome
from raysm.local.server.definitions import EndReason, request_module
from raysm.local.server.job_status import (
    FAILURES,
    INTERNAL_ERROR,
    JobLife,
    check_interruption,
    check_stop,
    describe_end,
    failure_reason,
)
from raysm.local.server.log_service import LogWriter, MetricScanner
from raysm.local.server.market import INSUFFICIENT, draw_interruption_s
from raysm.local.server.objects import download_channels, exit_message, upload, upload_order
from raysm.local.server.records import JobRecord
from raysm.local.server.services import Services, Ticket
from raysm.local.server.validation import ApiError

TICK_S = 0.1
INTERNAL_ERROR_AFTER_S = 1.0
METRICS_S = 2.0


class _Ended(Exception):
    """Ends the job's thread early; ``_end_reason`` says why."""


class JobRun(JobLife):
    def __init__(self, services: Services, record: JobRecord) -> None:
        super().__init__(services, record)
        self._begun_s = time.monotonic()  # monotonic, because a clock may be set
        self._instance_kind = record.instance_kind
        self._folder = services.records.folder(record.api, record.name, record.region)
        self._scanner = MetricScanner(services.moto, record, self._definition.metrics)
        self._end_reason: EndReason | None = None
        self._woken = threading.Event()
        """Set when there is a reason to end, or the instances have ended."""
        self._training_s = 0.0
        self._job: LocalJob | None = None
        self._ticket: Ticket | None = None
        self._thread = threading.Thread(target=self._run, name=f"job {record.name}", daemon=True)

    @property
    def instances(self) -> Mapping[str, Instance]:
        job = self._job
        return {} if job is None else job.instances

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the job to end: SIGTERM, and SIGKILL after the grace period.

        Raise ApiError if it has ended.
        """
        with self._records.held():
            check_stop(self.record)
            self._end_early("stop")

    def interrupt(self) -> None:
        """Take the job's spot capacity back: SIGTERM, and it starts again with its checkpoints."""
        with self._records.held():
            check_interruption(
                self.record, spot=self._definition.spot, is_ending=self._end_reason is not None
            )
            self._ask_to_end("interrupt")

    def _interrupt_if_running(self) -> None:
        # The job may have ended by now, or be uploading.
        with contextlib.suppress(ApiError):
            self.interrupt()

    def shut_down(self) -> None:
        with self._records.held():
            self._ask_to_end("shutdown")
        # The instances are gone when this returns.
        self._thread.join()

    def _ask_to_end(self, reason: EndReason) -> None:
        self._end_reason = reason
        self._woken.set()

    def _end_early(self, reason: EndReason) -> None:
        with self._records.held():
            # A stop overrides an interruption, after which the job would start again.
            if self._end_reason in ("stop", "shutdown"):
                return
            self._ask_to_end(reason)
            self.enter_stopping()

    def _run(self) -> None:
        ticket = self._ticket = self._services.cores.ask(
            self._definition.instances, self._created.name
        )
        try:
            if not self._services.cores.wait(ticket, 0.0):
                self.enter("Pending", self._waiting(self._services.cores.reason(ticket)))
            while not self._services.cores.wait(ticket, TICK_S):
                self._check_limits(waiting=True)
                self.explain_waiting(self._services.cores.reason(ticket))
            begin_s = time.monotonic() + self._capacity.start_delay_s
            while (left_s := begin_s - time.monotonic()) > 0:
                self._woken.wait(min(TICK_S, left_s))
                self._check_limits(waiting=True)
            if self._services.stock.take(self._created, self._chance):
                self._run_attempts()
            else:
                self._fail(INSUFFICIENT)
        except _Ended:
            self._finish_early()
        except InvalidRequest as error:
            # The request is wrong; RetryStrategy retries only InternalServerError.
            self._fail(f"ClientError: {error}")
        except (RaysmError, OSError) as error:
            self._fail(f"InternalServerError: {error}")
        except BaseException as error:
            # A bug: raise it, so that its traceback is in the server's log.
            self._fail(f"InternalServerError: {type(error).__name__}: {error}")
            raise
        finally:
            self._give_back()
            # An attempt that failed has not removed its folder.
            shutil.rmtree(self._folder / "work", ignore_errors=True)

    def _give_back(self) -> None:
        """Release cores and capacity, once: afterwards a job of the same name may have them."""
        ticket = self._ticket
        self._ticket = None
        if ticket is not None:
            self._services.cores.give_back(ticket)
            self._services.stock.give_back(self._created)

    def _finish(
        self, status: str, secondary: str, message: str, reason: str | None = None, **changes: Any
    ) -> None:
        # Before the last status, so that a job that is sent when this one has ended finds the
        # cores. No instance runs.
        self._give_back()
        self.finish(status, secondary, message, reason, metrics=self._scanner.last(), **changes)

    def _finish_early(self, **changes: Any) -> None:
        reason = self._end_reason or "stop"
        if reason in FAILURES:
            self._fail(FAILURES[reason])
        else:
            self._finish("Stopped", *describe_end(reason, self._api.title), **changes)

    def _check_limits(self, *, waiting: bool = False, running_s: float = 0.0) -> None:
        """Check the time limits; raise _Ended if the job is to end and has no instances."""
        if self._end_reason is None:
            ran_s = self._training_s + running_s
            exceeded = self._definition.find_exceeded(
                waited_s=self._waited_s, ran_s=ran_s, pending=waiting
            )
            if exceeded == "pending":
                with self._records.held():
                    # An earlier stop stays the reason.
                    self._end_reason = self._end_reason or exceeded
            elif exceeded is not None:
                self._end_early(exceeded)
        # ``_watch`` ends running instances first.
        if waiting and self._end_reason is not None:
            raise _Ended

    @property
    def _waited_s(self) -> float:
        return time.monotonic() - self._begun_s

    def _run_attempts(self) -> None:
        """Run attempts until one ends the job.

        Another follows an interruption or a retried error of the service.
        """
        # RetryStrategy does not count interruptions.
        number = 1
        retries = self._definition.retries
        while True:
            try:
                if not self._run_attempt(number):
                    return
                with self._records.held():  # keep a stop that comes meanwhile
                    self._end_reason = None if self._end_reason == "interrupt" else self._end_reason
                self.enter(
                    "Starting", f"Starting the {self._api.kind} job again after an interruption"
                )
            except InvalidRequest:
                # Another attempt would fail too.
                raise
            except (RaysmError, OSError) as error:
                if not retries or self.final.is_set():
                    raise
                retries -= 1
                self.enter(
                    "Restarting",
                    f"Restarting the {self._api.kind} job after InternalServerError: {error}",
                )
            number += 1

    def _run_attempt(self, number: int) -> bool:
        """Run the instances once; return whether they were interrupted."""
        # A new folder for each attempt: SageMaker's new instances find only their checkpoints.
        root = self._folder / "work" / str(number)
        make_folder(root, within=self._folder)
        self.enter("Downloading", "Downloading input data", attempts=number)
        objects = self._services.objects
        sources = download_channels(objects, self._definition.sources, root / "channels")
        spec: JobSpec = request_module(self._api).specify(self.record, objects, sources)
        self._check_limits(waiting=True)
        # A stream's name has the second at which its container started.
        writer = LogWriter(self._folder / "streams", time.time(), self.count_change)

        interrupted_by_line = False

        def on_line(host: str, text: str) -> None:
            nonlocal interrupted_by_line
            writer.line(host, text)
            self._scanner.line(text)
            if self._definition.spot and self._services.stock.interrupts(
                self._created.region, text
            ):
                interrupted_by_line = True
                self._interrupt_if_running()

        image = request_module(self._api).image(self.record.request)
        with (
            contextlib.closing(writer),
            LocalJob(
                spec,
                root=root,
                kind=self._instance_kind,
                image=image,
                on_line=on_line,
                on_end=self._woken.set,
                grace=GracePeriods(stop_grace_s=self._services.stop_grace_s),
                scenario=self._services.scenario,
            ) as job,
        ):
            for host in job.hosts:
                writer.open(host)
            job.start(self.enter_training)
            self._job = job
            try:
                outcome = self._watch(job)
            finally:
                self._job = None
            self._training_s += max(0.0, outcome.ended_s - outcome.started_s)
            self.update(training_s=self._training_s)
            # A job that ended by itself before the signal keeps its outcome, unless a line of its
            # log interrupted it.
            if self._end_reason == "interrupt" and (
                outcome.status == "Stopped" or interrupted_by_line
            ):
                self.enter(
                    "Interrupted",
                    f"{self._api.title} job interrupted: its spot capacity was taken away",
                )
                interrupted = True
            else:
                self._conclude(job, outcome, partial(writer.line, job.head))
                interrupted = False
        shutil.rmtree(root, ignore_errors=True)
        return interrupted

    def _watch(self, job: LocalJob) -> Outcome:
        """Wait until the instances have ended.

        Stop them at a request, a time limit or an interruption.
        """
        began = sent_s = time.monotonic()
        stopping = False
        has_internal_error = self._services.chance.random() < self._capacity.internal_errors
        error_at_s = began + INTERNAL_ERROR_AFTER_S if has_internal_error else math.inf
        if (
            interrupted_s := draw_interruption_s(
                self._capacity, self._chance, spot=self._definition.spot
            )
        ) < math.inf:
            self._services.timers.after(interrupted_s, self._interrupt_if_running)
        while True:
            self._woken.wait(
                min(
                    self._pause_s(time.monotonic() - began), max(0.0, error_at_s - time.monotonic())
                )
            )
            self._woken.clear()
            # Check first whether the instances have ended: then no reason to end them counts.
            with contextlib.suppress(TimeoutError):
                outcome = job.wait(0)
                self._scanner.send()
                return outcome
            now = time.monotonic()
            self._check_limits(running_s=now - began)
            # Without grace period or upload, because the server waits for this before it ends.
            if self._end_reason == "shutdown":
                job.close()
                raise _Ended
            if now >= error_at_s:
                self._training_s += now - began
                raise RaysmError(INTERNAL_ERROR)
            if self._end_reason is not None and not stopping:
                stopping = True
                job.stop()
            if now - sent_s >= METRICS_S:
                sent_s = now
                self._scanner.send()

    def _pause_s(self, running_s: float) -> float:
        """Return the seconds until the next time limit or metrics."""
        if self._end_reason is not None:  # no limit applies any more
            return METRICS_S
        left_s = self._definition.left_s(
            waited_s=self._waited_s, ran_s=self._training_s + running_s
        )
        return max(0.001, min(METRICS_S, left_s))

    def _conclude(self, job: LocalJob, outcome: Outcome, say: Callable[[str], None]) -> None:
        uploading = f"Uploading generated {self._api.kind} model"
        if job.checkpoint_error is not None:
            # A job that resumes from these checkpoints warns its sender.
            uploading += f"; {NOT_KEPT}: {job.checkpoint_error}"
        self.enter("Uploading", uploading)
        failed = outcome.status == "Failed"
        instances = [job.files(host) for host in upload_order(job, self._services.chance)]
        # Upload after a failure too: the outputs may show its cause.
        upload(
            self._services.objects,
            self._definition,
            instances,
            self._folder / "work",
            say,
            failed=failed,
        )
        changes: dict[str, Any] = {
            "exit_message": exit_message(job) if self._api.has_exit_message else None
        }
        if failed:
            self.update(**changes)
            self._fail(failure_reason(self._api, outcome))
            return
        changes["artifacts"] = self._definition.artifacts
        if outcome.status == "Stopped":
            self._finish_early(**changes)
        else:
            self._finish("Completed", "Completed", f"{self._api.title} job completed", **changes)
