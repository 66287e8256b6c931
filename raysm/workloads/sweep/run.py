"""A sweep from its first trial to its result, inside a cluster that is joined.

What flows in are the workload, what its trials were before an interruption, and the instances; what flows out is the
table of all trials and what the best one left, in the folder of the result.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
from ray import tune

from raysm.bootstrap.environment import tell
from raysm.contract.events import Event
from raysm.errors import TrialFailed
from raysm.request.sweep import SweepWorkload
from raysm.workloads.nodes import Node
from raysm.workloads.sweep.budget import Budget
from raysm.workloads.sweep.chronicle import Chronicle, Gate
from raysm.workloads.sweep.head_files import HeadFileSystem, serve_files
from raysm.workloads.sweep.journal import Entry, Journal, key_of
from raysm.workloads.sweep.placement import Reservation, remove_groups
from raysm.workloads.sweep.room import TrialSize, trials_at_once
from raysm.workloads.sweep.schedulers import scheduler_of
from raysm.workloads.sweep.search import Draw, Search, Searching, Waiting
from raysm.workloads.sweep.trial import name_of, run_trial

__all__ = ["Outcome", "Sweep", "size_of"]

FILES = "raysm-sweep-files"
"""Name of the actor that has the checkpoints, in the namespace of the driver."""

TUNE = {
    # Its tables, and its files for TensorBoard, say less than the events do.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # Results without the metric are judged here, with a sentence of their own.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # SIGINT is not how a job is ended.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # Its newer tables come also where nothing is to be said, and name a folder that is on no disk.
    "RAY_AIR_NEW_OUTPUT": "0",
    # What a trial raised is told once, as its reason.
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    # A trial stays in the folder of the user's code.
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    # Its own state is not read again: writing it every 10 s would be for nothing.
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    # A function that is ended early in a reused process may be in the middle of a step.
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "10",
}
"""Settings of Ray Tune, which it takes from nowhere else."""

LOGGERS = ("ray.tune", "ray.train")
"""Of what Tune says by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a sweep has found."""

    entries: tuple[Entry, ...]
    """All trials that ended, by their numbers."""
    notes: tuple[str, ...]
    """What to know of how it went."""
    seconds: float
    """How long the trials took together, from the first one's begin."""
    resumed: int
    """Trials of before the interruption, which were not run again."""
    groups_left: int
    """Placement groups that Ray did not remove."""


def size_of(workload: SweepWorkload, nodes: Sequence[Node]) -> TrialSize:
    """Return what one trial takes: where nobody said it, a GPU a worker if any instance has one."""
    gpus = workload.gpus
    if gpus is None:
        gpus = 1.0 if any(node.gpus for node in nodes) else 0.0
    return TrialSize(workers=workload.workers, cpus=workload.cpus, gpus=gpus)


@dataclass(kw_only=True)
class Sweep:
    """One sweep."""

    workload: SweepWorkload
    """What is asked for."""
    draw: Draw | None
    """Draws the parameters; None is by the workload's space."""
    root: Path
    """Folder of what is kept while it runs."""
    emit_event: Callable[[Event], None]
    """Tells the job."""
    notes: list[str] = field(default_factory=list)
    """What to know of how it went."""

    def run(self, nodes: Sequence[Node]) -> Outcome:
        """Run the trials that are left, on the instances ``nodes``, of which the first is the head.

        Raises:
            InvalidRequest: Not even one trial fits, or no trial reported the metric.
            TrialFailed: All of them failed.
        """
        tell(TUNE)
        # That it made a checkpoint, or found no files of its own beside it, is of no use to anybody.
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.ERROR)
        size = size_of(self.workload, nodes)
        offers = [{"CPU": float(node.cpus), "GPU": float(node.gpus)} for node in nodes]
        at_once, note = trials_at_once(offers, size, most=self.workload.concurrency)
        self.notes += [note] if note else []
        journal = Journal(self.root, key_of(self.workload))
        entries = journal.entries()
        finished = [entry for entry in entries if entry.trial.status != "running"]
        interrupted = [_waiting(entry) for entry in entries if entry.trial.status == "running"]
        search = Search.begin(self.workload, self.draw, [entry.trial for entry in finished], interrupted)
        searching = Searching(search)
        chronicle = Chronicle(
            self.workload,
            search=search,
            searching=searching,
            journal=journal,
            emit_event=self.emit_event,
            earlier=entries,
        )
        begun_s = time.monotonic()
        plan = _Plan(size, at_once, self._trials_left(len(finished)), nodes[0])
        left = self._tune(chronicle, searching, plan, Budget(self.workload.time_budget_s, journal))
        outcome = Outcome(
            entries=tuple(chronicle.entries[number] for number in sorted(chronicle.entries)),
            notes=tuple(self.notes),
            seconds=time.monotonic() - begun_s,
            resumed=len(finished),
            groups_left=left,
        )
        _refuse(outcome, chronicle)
        return outcome

    @property
    def _takes_turns(self) -> bool:
        return self.workload.stop is not None and self.workload.stop.takes_turns

    def _trials_left(self, finished: int) -> int:
        return max(0, self.workload.planned_trials - finished)

    def _tune(self, chronicle: Chronicle, searching: Searching, plan: "_Plan", budget: Budget) -> int:
        """Let Ray Tune run the trials; return how many placement groups are left."""
        if not plan.trials:
            return 0
        left: list[Any] = []
        # Earlier runs may have taken all of it.
        if not budget.is_over:
            actor = serve_files(chronicle.files, plan.head.node_id, FILES)
            try:
                self._tuner(chronicle, searching, plan, budget).fit()
            finally:
                left = remove_groups()
            del actor
        chronicle.abandon()
        budget.keep()
        if budget.is_over:
            missing = max(0, self.workload.planned_trials - len(chronicle.entries))
            self.notes.append(
                f"the time of {self.workload.time_budget_s:g} s was over: {missing} trials were not begun"
            )
        return len(left)

    def _tuner(self, chronicle: Chronicle, searching: Searching, plan: "_Plan", budget: Budget) -> tune.Tuner:
        def name(trial: Any) -> str:
            return name_of(searching.numbers[trial.trial_id], trial.trial_id)

        return tune.Tuner(
            tune.with_resources(run_trial, Reservation.of(plan.size)),
            param_space={"files": FILES},
            tune_config=tune.TuneConfig(
                search_alg=searching,
                scheduler=scheduler_of(self.workload),
                num_samples=plan.trials,
                max_concurrent_trials=None if self._takes_turns else plan.at_once,
                time_budget_s=budget.left_s,
                reuse_actors=self.workload.reuse and self.workload.workers == 1,
                trial_name_creator=name,
                trial_dirname_creator=name,
            ),
            run_config=tune.RunConfig(
                # Of its own: what was there before an interruption is read by the journal alone.
                name=f"run-{time.time_ns()}",
                storage_path="/",
                storage_filesystem=pafs.PyFileSystem(HeadFileSystem(FILES)),
                callbacks=[chronicle, budget],
                stop=Gate(chronicle),
                failure_config=tune.FailureConfig(max_failures=self.workload.retries),
                verbose=0,
            ),
        )


@dataclass(frozen=True)
class _Plan:
    """How the trials run."""

    size: TrialSize
    at_once: int
    trials: int
    head: Node


def _waiting(entry: Entry) -> Waiting:
    trial = entry.trial
    # Without its checkpoint it begins anew, and so does the count of its reports.
    reports = 0 if entry.checkpoint is None else trial.reports
    return Waiting(params=trial.params, number=trial.number, restored=entry.checkpoint, reports=reports)


def _refuse(outcome: Outcome, chronicle: Chronicle) -> None:
    """Fail where the sweep has found nothing."""
    if chronicle.refusal is not None:
        raise chronicle.refusal
    if all(entry.trial.status == "failed" for entry in outcome.entries):
        first = min(outcome.entries, key=lambda entry: entry.trial.time_s, default=None)
        if first is None:
            raise TrialFailed("no trial ended within the time of the sweep; give it more (time_budget_s)")
        raise TrialFailed(
            f"all {len(outcome.entries)} trials failed; the first one (trial {first.trial.number}): "
            f"{first.trial.reason}",
            first.traceback,
        )
