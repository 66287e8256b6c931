"""The jobs of all queues: each is brought from one status to the next as soon as that is possible.

::

    SUBMITTED ── PENDING (others are to end first) ── RUNNABLE ── SCHEDULED ── STARTING ── RUNNING ── SUCCEEDED
                                                         ▲  └─ FAILED: a limit of time  │       └──── FAILED
                                                         └──── one more attempt ────────┴─────────────┘

``step`` does whatever is to be done now and may be called at any time; the thread does nothing but call it.
"""

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.dependencies import FAILED, awaited
from raysm.local.server.batch.model import client_error
from raysm.local.server.batch.records import ACTIVE, BatchJob, BatchJobs, Try
from raysm.local.server.batch.resources import Resource, Resources
from raysm.local.server.batch.retry import is_again
from raysm.local.server.batch.waiting import in_turn, time_is_up, weights_of
from raysm.local.server.batch.work import NotNow, Seen, Work

__all__ = ["BatchRun"]

LOG = logging.getLogger(__name__)
STEP_S = 0.2
"""How often it is looked whether there is something to do."""
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 300.0
"""Before an attempt that found no capacity is followed by the next: 5, 10, 20 … s. Batch tries for ever, and says not
how often."""
TOO_LONG = "Job attempt duration exceeded timeout"


class BatchRun:
    """Carries the jobs out."""

    def __init__(self, jobs: BatchJobs, resources: Resources, works: Mapping[str, Work]) -> None:
        """Take the jobs, what they are sent to, and by kind what their attempts are."""
        self._jobs, self._resources, self._works = jobs, resources, works
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
        """Begin nothing more, and end what is not a training job."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        for work in self._works.values():
            work.close()

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
        elif job.status == "RUNNABLE":
            self._expire(job)
        else:
            self._await_others(job)

    def _await_others(self, job: BatchJob) -> None:
        waits = awaited(job, self._jobs.find)
        if waits is None:
            self._finish(job, "FAILED", FAILED)
        elif not waits:
            self._jobs.update(job.id, status="RUNNABLE", runnable_s=self._jobs.clock.now())
        elif job.status != "PENDING":
            self._jobs.update(job.id, status="PENDING")

    def _expire(self, job: BatchJob) -> None:
        queue = self._resources.get("job-queue", job.region, job.queue)
        action = time_is_up(job, queue.body.get("jobStateTimeLimitActions") or [], self._jobs.clock.now())
        if action is not None:
            verb = {"CANCEL": "Canceled", "TERMINATE": "Terminated"}[action["action"]]
            reason = f"{verb} by JobStateTimeLimit action due to reason: {action['reason']}"
            self._jobs.update(job.id, ordered=reason, is_cancelled=action["action"] == "CANCEL")
            self._finish(job, "FAILED", reason)

    def _look(self, job: BatchJob) -> None:
        work, now = self._works[job.kind], self._jobs.clock.now()
        state = work.look(job)
        if state.status not in ACTIVE:
            self._conclude(job, state)
            return
        # Forward alone: a training job that was interrupted starts again, and its job runs.
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
        changes = {"reason": state.reason, "exit_code": state.exit_code, "is_starved": state.is_starved}
        job = self._jobs.update_try(job.id, stopped_s=self._jobs.clock.now(), **changes)
        if job.ordered is not None:
            # Also of one that ended well in this moment: AWS, too, has it FAILED from the order on.
            self._finish(job, "FAILED", job.ordered)
        elif state.is_starved:
            self._jobs.update(job.id, status="RUNNABLE", reason=state.reason)
        elif state.status == "FAILED" and self._is_again(job, state):
            now = self._jobs.clock.now()
            self._jobs.update(job.id, status="RUNNABLE", runnable_s=now, reason=state.reason)
        else:
            self._finish(job, state.status, state.reason)

    def _is_again(self, job: BatchJob, state: Seen) -> bool:
        code = None if state.exit_code is None else str(state.exit_code)
        ending = {"onExitCode": code, "onReason": state.reason, "onStatusReason": state.reason}
        return is_again(job.request.get("retryStrategy"), job.counted, ending)

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
                used[str(job.request["environment"])] += round(self._works[job.kind].need(job) * 1000)
        # Of queues that share an environment, the one of the highest priority is served before the others.
        for queue in sorted(queues, key=lambda one: -one.body["priority"]):
            self._begin(queue, by_queue[queue.region, queue.arn], used)

    def _begin(self, queue: Resource, jobs: Sequence[BatchJob], used: "Counter[str]") -> None:
        waiting = [job for job in jobs if job.status == "RUNNABLE"]
        if not waiting:
            return
        work = self._works[waiting[0].kind]
        running = [job for job in jobs if job.status in ACTIVE]
        for job in in_turn(waiting, running, self._weights(queue), work.need):
            # It waits first, and those behind it with it: else small jobs would keep a large one from ever beginning.
            if not self._begin_one(queue, job, work, used):
                return

    def _begin_one(self, queue: Resource, job: BatchJob, work: Work, used: "Counter[str]") -> bool:
        need, now = round(work.need(job) * 1000), self._jobs.clock.now()
        if now < _again_s(job):
            return False
        for environment in self._environments(queue, work):
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

    def _environments(self, queue: Resource, work: Work) -> list[Resource]:
        order: Sequence[Mapping[str, Any]] = queue.body.get(work.environments) or []
        names = [item[work.environment] for item in sorted(order, key=lambda item: item["order"])]
        listed = [self._resources.get(work.part, queue.region, name) for name in names]
        return [environment for environment in listed if environment.is_enabled]

    def _weights(self, queue: Resource) -> Mapping[str, float]:
        named = queue.body.get("schedulingPolicyArn")
        if not named:
            return {}
        try:
            return weights_of(self._resources.get("scheduling-policy", queue.region, named).body)
        except ApiError:
            raise client_error(f"the scheduling policy of {queue.arn} is gone") from None


def _again_s(job: BatchJob) -> float:
    """Return when a job that found no capacity tries again."""
    starved = [one.is_starved for one in reversed(job.tries)]
    times = (*starved, False).index(False)
    if not times:
        return 0.0
    # A record of a full region for a day is to have hundreds of attempts, and not a hundred thousand.
    pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * float(2 ** min(times - 1, 10)))
    return (job.tries[-1].stopped_s or 0.0) + pause_s
