"""The jobs of all queues: each is brought from one status to the next as soon as that is possible.

::

    SUBMITTED ── PENDING (others are to end first) ── RUNNABLE ── STARTING ── RUNNING ── SUCCEEDED
                                                         ▲                       ├────── FAILED
                                                         └── one more attempt ───┘

``step`` does whatever is due now and may be called at any time; the thread only calls it.
"""

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.dependencies import FAILED, awaited
from raysm.local.server.batch.program_work import NotNow, ProgramWork, Seen
from raysm.local.server.batch.records import ACTIVE, BatchJob, BatchJobs, Try
from raysm.local.server.batch.resources import Resource, Resources
from raysm.local.server.batch.retry import is_again

__all__ = ["BatchRun"]

LOG = logging.getLogger(__name__)
STEP_S = 0.2
"""How often it is looked whether there is something to do."""
TOO_LONG = "Job attempt duration exceeded timeout"


class BatchRun:
    """Carries the jobs out."""

    def __init__(self, jobs: BatchJobs, resources: Resources, work: ProgramWork) -> None:
        """Take the jobs, their queues, and what runs an attempt."""
        self._jobs, self._resources, self._work = jobs, resources, work
        # Reentrant: who ends a job steps at once.
        self._lock = threading.RLock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether something is still done for a job."""
        return bool(self._jobs.open())

    def wake(self) -> None:
        """Go on; a thread is there from the first job on."""
        with self._lock:
            if self._thread is None and not self._ending.is_set():
                self._thread = threading.Thread(target=self._run, name="batch", daemon=True)
                self._thread.start()

    def end(self, job: BatchJob, reason: str, *, cancels: bool = False) -> None:
        """End a job for a reason; one that runs already is not cancelled, but terminated."""
        with self._lock:
            for one in self._jobs.children(job.id) if job.size and job.index is None else [job]:
                if not one.final and not (cancels and one.status in ("STARTING", "RUNNING")):
                    self._jobs.update(one.id, ordered=reason, is_cancelled=cancels)
            self.step()

    def shut_down(self) -> None:
        """Begin nothing more, and end what runs."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        self._work.close()

    def _run(self) -> None:
        while not self._ending.wait(STEP_S):
            try:
                self.step()
            except Exception:
                # As on a full disk: the next look finds how it is then, and the other jobs are not to wait for it.
                LOG.exception("a step of the embedded Batch failed")

    def step(self) -> None:
        """Do what is to be done now."""
        with self._lock:
            for job in self._jobs.open():
                if job.size is None or job.index is not None:
                    self._advance(job)
            for job in self._jobs.open():
                if job.size is not None and job.index is None:
                    self._sum_up(job)
            self._begin_all()

    # -- one job

    def _advance(self, job: BatchJob) -> None:
        if job.status in ACTIVE:
            self._look(job)
        elif job.ordered is not None:
            self._finish(job, "FAILED", job.ordered)
        elif job.status != "RUNNABLE":
            self._await_others(job)

    def _await_others(self, job: BatchJob) -> None:
        waits = awaited(job, self._jobs.find)
        if waits is None:
            self._finish(job, "FAILED", FAILED)
        elif not waits:
            self._jobs.update(job.id, status="RUNNABLE")
        elif job.status != "PENDING":
            self._jobs.update(job.id, status="PENDING")

    def _look(self, job: BatchJob) -> None:
        work, now = self._work, self._jobs.clock.now()
        state = work.look(job)
        if state.status not in ACTIVE:
            self._conclude(job, state)
            return
        if ACTIVE.index(state.status) > ACTIVE.index(job.status):
            job = self._jobs.update(job.id, status=state.status)
        if state.status == "RUNNING" and job.tries[-1].started_s is None:
            self._jobs.update_try(job.id, started_s=now)
            job = self._jobs.update(job.id, started_s=now)
        limit_s, started_s = work.limit_s(job), job.tries[-1].started_s
        if job.ordered is None and limit_s is not None and started_s is not None and now - started_s >= limit_s:
            job = self._jobs.update(job.id, ordered=TOO_LONG)
        if job.ordered is not None:
            work.stop(job)

    def _conclude(self, job: BatchJob, state: Seen) -> None:
        changes = {"reason": state.reason, "exit_code": state.exit_code}
        job = self._jobs.update_try(job.id, stopped_s=self._jobs.clock.now(), **changes)
        if job.ordered is not None:
            # Also of one that ended well in this moment: AWS, too, has it FAILED from the order on.
            self._finish(job, "FAILED", job.ordered)
        elif state.status == "FAILED" and self._is_again(job, state):
            self._jobs.update(job.id, status="RUNNABLE", reason=state.reason)
        else:
            self._finish(job, state.status, state.reason)

    def _is_again(self, job: BatchJob, state: Seen) -> bool:
        code = None if state.exit_code is None else str(state.exit_code)
        ending = {"onExitCode": code, "onReason": state.reason, "onStatusReason": state.reason}
        return is_again(job.request.get("retryStrategy"), len(job.tries), ending)

    def _finish(self, job: BatchJob, status: str, reason: str) -> None:
        self._jobs.update(job.id, status=status, reason=reason, stopped_s=self._jobs.clock.now())

    def _sum_up(self, job: BatchJob) -> None:
        """Say of an array what its children are."""
        # An array is PENDING as long as one of its children has not ended, as on AWS.
        children = self._jobs.children(job.id)
        if not all(child.final for child in children):
            if job.status != "PENDING":
                self._jobs.update(job.id, status="PENDING")
            return
        failed = any(child.status == "FAILED" for child in children)
        reason = "Array Child Job failed" if failed else ""
        self._finish(job, "FAILED" if failed else "SUCCEEDED", reason)

    # -- those that wait

    def _begin_all(self) -> None:
        by_queue: defaultdict[tuple[str, str], list[BatchJob]] = defaultdict(list)
        for job in self._jobs.open():
            if job.size is None or job.index is not None:
                by_queue[job.region, job.queue].append(job)
        queues = [self._resources.get("job-queue", *where) for where in by_queue]
        used: Counter[str] = Counter()
        for job in self._jobs.open():
            if job.status in ACTIVE:
                used[str(job.request["environment"])] += round(self._work.need(job) * 1000)
        # Of queues that share an environment, the one of the highest priority is served before the others.
        for queue in sorted(queues, key=lambda one: -one.body["priority"]):
            self._begin(queue, by_queue[queue.region, queue.arn], used)

    def _begin(self, queue: Resource, jobs: Sequence[BatchJob], used: "Counter[str]") -> None:
        waiting = [job for job in jobs if job.status == "RUNNABLE"]
        for job in sorted(waiting, key=lambda job: (-job.priority, job.created_s, job.index or 0)):
            # Jobs behind one that does not fit wait with it: otherwise small jobs would starve a large one.
            if not self._begin_one(queue, job, used):
                return

    def _begin_one(self, queue: Resource, job: BatchJob, used: "Counter[str]") -> bool:
        work, now = self._work, self._jobs.clock.now()
        need = round(work.need(job) * 1000)
        for environment in self._environments(queue):
            if used[environment.arn] + need > work.capacity(environment.body) * 1000:
                continue
            job = self._jobs.update(job.id, request={**job.request, "environment": environment.arn})
            try:
                resource = work.begin(job)
            except NotNow as reason:
                self._jobs.update(job.id, reason=str(reason))
                return False
            except ApiError as error:
                self._jobs.update(job.id, tries=(*job.tries, Try(resource="", begun_s=now)))
                self._conclude(job, Seen(status="FAILED", reason=error.message))
                return True
            tries = (*job.tries, Try(resource=resource, begun_s=now))
            self._jobs.update(job.id, status=ACTIVE[0], tries=tries)
            used[environment.arn] += need
            return True
        return False

    def _environments(self, queue: Resource) -> list[Resource]:
        order: Sequence[Mapping[str, Any]] = queue.body["computeEnvironmentOrder"]
        names = [item["computeEnvironment"] for item in sorted(order, key=lambda item: item["order"])]
        listed = [self._resources.get("compute-environment", queue.region, name) for name in names]
        return [environment for environment in listed if environment.is_enabled]
