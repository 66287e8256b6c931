"""The life of one tuning job: training jobs are launched, looked at, stopped early, until it is enough.

::

    InProgress ── enough, or nothing more to try, and no training job runs ── Completed
         ├──────── none of the first five succeeded ───────────────────────── Failed
         └──────── Stopping ── its training jobs are stopped ──────────────── Stopped

``step`` does whatever is to be done now and may be called at any time; the thread does nothing but call it.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from raysm.contract.clock import Clock
from raysm.local.server.api_error import ApiError, validation
from raysm.local.server.records import JobRecord
from raysm.local.server.tuning import progress
from raysm.local.server.tuning.definition import Definition, job_name, most_jobs
from raysm.local.server.tuning.median_rule import falls_behind
from raysm.local.server.tuning.records import Child, TuningRecord, TuningRecords
from raysm.local.server.tuning.trial import Objective, Trial

__all__ = ["TrainingJobs", "TuningRun"]

LOG = logging.getLogger(__name__)
STEP_S = 0.2
"""How often it is looked whether there is something to do."""


class TrainingJobs(Protocol):
    """The training jobs of the server, as far as a tuning job is concerned."""

    def launch(self, request: Mapping[str, Any], region: str, tuning_job: str) -> None:
        """Create one; raises ApiError where it is refused."""

    def training_job(self, name: str, region: str) -> JobRecord:
        """Return one as it is now; raises ApiError where there is none."""

    def reported(self, name: str, region: str, metric: str) -> Sequence[float]:
        """Return all values of a metric so far."""

    def stop_training(self, name: str, region: str) -> None:
        """Ask one to end; raises ApiError where it has."""


class TuningRun:
    """Carries one tuning job out."""

    def __init__(
        self,
        records: TuningRecords,
        record: TuningRecord,
        jobs: TrainingJobs,
        definitions: Sequence[Definition],
        parents: Sequence[Trial] = (),
    ) -> None:
        """Take a tuning job whose record was added.

        Args:
            records: Where it is recorded.
            record: It.
            jobs: Where training jobs are launched.
            definitions: What it launches.
            parents: What is known of the tuning jobs that it begins with.
        """
        self._records, self._jobs, self._parents = records, jobs, parents
        self._name, self._region = record.name, record.region
        self._definitions = definitions
        self._strategies = [definition.strategy() for definition in definitions]
        self._config = record.request["HyperParameterTuningJobConfig"]
        self._most = most_jobs(record.request, tuple(definitions))
        # Reentrant: who stops it steps at once.
        self._lock = threading.RLock()
        self._ending = threading.Event()
        self._exhausted = False
        self._thread = threading.Thread(target=self._run, name=f"tuning {record.name}", daemon=True)

    @property
    def record(self) -> TuningRecord:
        """As it is now."""
        return self._records.get(self._name, self._region)

    @property
    def _clock(self) -> Clock:
        return self._records.clock

    @property
    def _objective(self) -> Objective:
        # Of several definitions each has its own; AWS compares them as they are, and so the first one's kind counts.
        return self._definitions[0].objective

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Launch nothing more, and stop what runs; raises ApiError where it has ended."""
        with self._lock:
            if self.record.final:
                raise validation(
                    "The request was rejected because the hyper parameter tuning job is in status "
                    f"{self.record.status}."
                )
            self._records.update(self.record, status="Stopping", enough="it was stopped")
            self.step()

    def shut_down(self) -> None:
        """Do nothing more, since the server ends; its training jobs are ended by whoever ends all jobs."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self.record.final and not self._ending.wait(STEP_S):
            try:
                self.step()
            except ApiError as error:
                # As where a training job was deleted meanwhile: the next look finds how it is then.
                LOG.warning("a step of the tuning job %s failed: %s", self._name, error.message)

    def step(self) -> None:
        """Do what is to be done now."""
        with self._lock:
            if self.record.final:
                return
            self._look()
            self._decide()
            if self.record.enough:
                self._stop(self._running())
            else:
                self._stop_early()
                self._launch()
            if not self._running() and (self.record.enough or self._exhausted):
                self._finish()

    # -- what it sees

    def _running(self) -> list[Child]:
        return [child for child in self.record.children if not child.ended]

    def _look(self) -> None:
        """Take in what has become of the training jobs."""
        children = [child if child.ended else self._seen(child) for child in self.record.children]
        # Written where something ended alone: what runs is asked anew each time.
        if sum(child.ended for child in children) != sum(child.ended for child in self.record.children):
            self._records.update(self.record, children=tuple(children))

    def _seen(self, child: Child) -> Child:
        try:
            job = self._jobs.training_job(child.name, self._region)
        except ApiError:
            # Deleted: it has no value any more that somebody could see.
            return replace(child, ended=True)
        if not job.final:
            return child
        metric = self._objective_of(child).metric
        values = {item["MetricName"]: float(item["Value"]) for item in job.metrics}
        # One that failed may have reported before; it is no result.
        value = None if job.status == "Failed" else values.get(metric)
        return replace(child, ended=True, value=value, losses=self._losses(child))

    def _losses(self, child: Child) -> tuple[float, ...]:
        objective = self._objective_of(child)
        values = self._jobs.reported(child.name, self._region, objective.metric)
        return tuple(objective.loss(value) for value in values)

    def _objective_of(self, child: Child) -> Objective:
        return self._definitions[child.number % len(self._definitions)].objective

    def _trials(self, which: int) -> list[Trial]:
        """Return what is known of the trials of the definition ``which``, its parents' first."""
        children = [child for child in self.record.children if child.number % len(self._definitions) == which]
        current = [child if child.ended else replace(child, losses=self._losses(child)) for child in children]
        return [*self._parents, *(child.trial for child in current)]

    # -- what it does

    def _decide(self) -> None:
        record = self.record
        reason = progress.failed(record.children, self._most)
        if reason:
            self._records.update(record, enough=reason, failure_reason=reason)
        elif not record.enough:
            ran_s = self._clock.now() - record.created_s
            enough = progress.enough(self._config, record.children, self._objective, ran_s)
            if enough:
                self._records.update(record, enough=enough)
            if record.converged_s is None and progress.has_converged(record.children, self._objective):
                self._records.update(self.record, converged_s=self._clock.now())

    def _stop(self, children: Sequence[Child]) -> None:
        for child in children:
            # It may have ended in this moment, or be stopping already.
            try:
                if self._jobs.training_job(child.name, self._region).status == "InProgress":
                    self._jobs.stop_training(child.name, self._region)
            except ApiError as error:
                LOG.info("the training job %s was not stopped: %s", child.name, error.message)

    def _stop_early(self) -> None:
        auto = self._config.get("TrainingJobEarlyStoppingType") == "Auto"
        for which, strategy in enumerate(self._strategies):
            trials = self._trials(which)
            behind = {
                trial.number
                for trial in trials
                if not trial.ended and (strategy.stops(trial, trials) or (auto and falls_behind(trial, trials)))
            }
            self._stop([child for child in self._running() if child.number in behind])

    def _launch(self) -> None:
        parallel = self._config["ResourceLimits"]["MaxParallelTrainingJobs"]
        while len(self._running()) < parallel and not self._exhausted:
            number = len(self.record.children)
            child = None if self._most is not None and number >= self._most else self._proposed(number)
            if child is None:
                self._exhausted = True
            elif not self._create(child):
                return

    def _proposed(self, number: int) -> Child | None:
        which = number % len(self._definitions)
        assignment = self._strategies[which].propose(self._trials(which), number // len(self._definitions))
        if assignment is None:
            return None
        definition = self._definitions[which].name
        return Child(number=number, name=job_name(self._name, number), definition=definition, assignment=assignment)

    def _create(self, child: Child) -> bool:
        """Launch a training job; return whether it was: what has no room now may have some when another one ends."""
        record = self.record
        request = self._definitions[child.number % len(self._definitions)].request(child.name, child.assignment)
        tags = [{"Key": key, "Value": value} for key, value in record.tags.items()]
        try:
            self._jobs.launch({**request, "Tags": tags}, self._region, record.arn)
        except ApiError as error:
            if not self._running():
                self._records.update(record, enough=error.message, failure_reason=f"{error.code}: {error.message}")
                self._exhausted = True
            return False
        self._records.update(record, children=(*record.children, child))
        return True

    def _finish(self) -> None:
        record = self.record
        status = "Stopped" if record.status == "Stopping" else "Failed" if record.failure_reason else "Completed"
        self._records.update(record, status=status, ended_s=self._clock.now())
