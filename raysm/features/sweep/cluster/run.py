"""A sweep from its first trial to its result, on a formed cluster.

The sweep keeps one actor for each trial that runs at a time. Each call to an actor returns the
trial's next message; the sweep waits for the messages of all actors and answers them.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raysm.core.protocol.events import Event, Metric, Progress, Trial, best_of, where_diverged
from raysm.errors import InvalidRequest, TrialFailed
from raysm.features.sweep.cluster.study import Entry, Population, Study
from raysm.features.sweep.cluster.trial import Assignment, Message, TrialActor, serve_files
from raysm.features.sweep.request import Pbt, SweepWorkload
from raysm.instance.work.failure import how_process_ended
from raysm.instance.work.nodes import Node, tasks_at_once
from raysm.instance.work.report import Report

SPENT_EVERY_S = 10.0
"""Seconds between two saves of the time spent; a killed run may take this much more than its
budget."""

STOPS_WITHIN_S = 10.0
"""Seconds that a trial has for its ``finally`` blocks after it should stop; then its process is
killed."""

MAX_FAILED_STARTS = 20
"""Processes in a row that died before they took a trial, after which the sweep fails."""

CHECKPOINTS_KEPT = 2
"""Checkpoints of each running trial: the latest, and the one before, which the copy of the journal
in S3 may name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]
    seconds: float
    resumed: int
    """Trials that were done before an interruption, and did not run again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialSize:
    workers: int
    cpus: float
    gpus: float


@dataclass(kw_only=True, eq=False)
class _Trial:
    entry: Entry
    checkpoints: list[str] = field(default_factory=list)
    began_s: float | None = None
    deaths: int = 0
    diverged: str = ""
    """The last report of the metric if it was not finite: ``loss is nan at step 3``."""

    @property
    def number(self) -> int:
        return self.entry.trial.number


@dataclass(kw_only=True, eq=False)
class _Slot:
    actor: Any
    group: Any
    trial: _Trial | None = None
    kill_at_s: float = math.inf
    """Time to kill the actor, if its trial should have stopped and still runs."""


def run_sweep(
    workload: SweepWorkload,
    study: Study,
    nodes: Sequence[Node],
    emit_event: Callable[[Event], None],
) -> Outcome:
    size = choose_size(workload, nodes)
    offers = [{"CPU": float(node.cpus), "GPU": float(node.gpus)} for node in nodes]
    at_once, note = trials_at_once(offers, size, most=workload.concurrency)
    resumed = len(study.entries)
    begun_s = time.monotonic()
    run = _Run(workload, study, emit_event, size, at_once)
    run.notes += [note] if note else []
    run.run(nodes[0])
    entries = tuple(study.entries[number] for number in sorted(study.entries))
    first = min(entries, key=lambda entry: entry.trial.time_s, default=None)
    if first is None:
        raise TrialFailed(
            "no trial ended within the time of the sweep; give it more (time_budget_s)"
        )
    if all(entry.trial.status == "failed" or where_diverged(entry.trial) for entry in entries):
        which = f"the first one (trial {first.trial.number}): {first.trial.reason}"
        raise TrialFailed(f"all {len(entries)} trials failed or diverged; {which}", first.traceback)
    return Outcome(
        entries=entries, notes=tuple(run.notes), seconds=time.monotonic() - begun_s, resumed=resumed
    )


class _Run:
    def __init__(
        self,
        workload: SweepWorkload,
        study: Study,
        emit_event: Callable[[Event], None],
        size: TrialSize,
        at_once: int,
    ) -> None:
        self._workload = workload
        self._study = study
        self._emit = emit_event
        self._size = size
        self._at_once = at_once
        self.notes: list[str] = []
        self._files: Any = None
        self._calls: dict[Any, _Slot] = {}
        # Trials that were interrupted or whose process died run before new ones; those of a
        # population that take turns run after them.
        self._resuming = [_Trial(entry=entry) for entry in study.interrupted]
        self._paused: list[_Trial] = []
        self._unbegun = max(0, workload.planned_trials - len(study.entries) - len(self._resuming))
        self._has_metric = any(entry.trial.value is not None for entry in study.entries.values())
        self._failed_starts = 0
        self._population = (
            Population(workload.stop, workload) if isinstance(workload.stop, Pbt) else None
        )
        self._begun_s = time.monotonic() - study.spent_s
        self._saved_s = time.monotonic()
        self._emit_progress()

    def run(self, head: Node) -> None:
        if self._is_waiting and not self._is_over:
            self._files = serve_files(self._study.files, head.node_id)
            try:
                self._loop()
            finally:
                for slot in list(self._calls.values()):
                    self._close(slot)
                ray.kill(self._files)
        if self._is_over:
            for trial in [
                *self._resuming,
                *self._paused,
                *(slot.trial for slot in self._calls.values()),
            ]:
                if trial is not None:
                    self._end(trial, "stopped")
            missing = max(0, self._workload.planned_trials - len(self._study.entries))
            self.notes.append(
                f"the time of {self._workload.time_budget_s:g} s was over: {missing} trials were "
                "not begun"
            )
        self._save_spent()

    def _loop(self) -> None:
        while self._is_waiting or any(slot.trial for slot in self._calls.values()):
            running = sum(slot.trial is not None for slot in self._calls.values())
            waiting = len(self._resuming) + len(self._paused) + self._unbegun
            for _ in range(min(self._at_once, running + waiting) - len(self._calls)):
                self._open()
            ready, _ = ray.wait(list(self._calls), timeout=max(0.0, min(1.0, self._left_s)))
            for call in ready:
                self._on_answer(call, self._calls.pop(call))
            now_s = time.monotonic()
            for call, slot in list(self._calls.items()):
                if now_s >= slot.kill_at_s:
                    del self._calls[call]
                    self._close(slot)
            if now_s - self._saved_s >= SPENT_EVERY_S:
                self._save_spent()
            if self._is_over:
                return

    # Slots and their calls.

    def _open(self) -> None:
        size = self._size
        bundle = {"CPU": size.cpus} | ({"GPU": size.gpus} if size.gpus else {})
        group = None
        options = {}
        if size.workers > 1:
            # All workers are placed together or not at all. Not STRICT_PACK: one instance may have
            # too few GPUs.
            group = placement_group([dict(bundle) for _ in range(size.workers)], strategy="PACK")
            options = {
                "scheduling_strategy": PlacementGroupSchedulingStrategy(
                    group, placement_group_bundle_index=0
                )
            }
        actor = (
            ray.remote(TrialActor)
            .options(num_cpus=size.cpus, num_gpus=size.gpus, **options)
            .remote()
        )
        self._calls[actor.ready.remote()] = _Slot(actor=actor, group=group)

    def _close(self, slot: _Slot) -> None:
        ray.kill(slot.actor)
        if slot.group is not None:
            remove_placement_group(slot.group)

    def _on_answer(self, call: Any, slot: _Slot) -> None:
        try:
            message: Message | None = ray.get(call)
        except ray.exceptions.RayError as error:
            self._on_death(slot, error)
            return
        self._failed_starts = 0
        if message is None:
            self._assign(slot)
        elif message.status:
            if slot.trial is not None:
                self._on_end(slot.trial, message)
                slot.trial = None
            # A function with several workers leaves a process group's variables behind.
            if self._workload.reuse and self._size.workers == 1:
                self._assign(slot)
            else:
                self._close(slot)
        else:
            # A trial that should stop may report again from another thread.
            goes_on = slot.trial is not None and self._on_report(slot.trial, message)
            if not goes_on:
                slot.trial = None
                slot.kill_at_s = min(slot.kill_at_s, time.monotonic() + STOPS_WITHIN_S)
            self._calls[slot.actor.answer.remote(goes_on)] = slot

    def _assign(self, slot: _Slot) -> None:
        trial = self._next()
        if trial is None:
            self._close(slot)
            return
        slot.trial = trial
        slot.kill_at_s = math.inf
        # The start of a trial is announced once, even if its process died or it takes turns.
        if trial.began_s is None:
            trial.began_s = time.monotonic()
            # An interrupted trial without its checkpoint starts from the beginning.
            if trial.entry.checkpoint is None:
                trial.entry = Entry(
                    trial=Trial(
                        number=trial.number, status="running", params=trial.entry.trial.params
                    )
                )
            else:
                trial.checkpoints.append(trial.entry.checkpoint)
            trial.entry = self._study.save(trial.entry)
            self._emit(trial.entry.trial)
        trial.entry = replace(
            trial.entry, trial=replace(trial.entry.trial, reports=trial.entry.reports)
        )
        assignment = Assignment(
            number=trial.number,
            params=trial.entry.trial.params,
            checkpoint=trial.entry.checkpoint,
            files=self._files,
        )
        self._calls[slot.actor.begin.remote(assignment)] = slot

    def _next(self) -> _Trial | None:
        if self._resuming:
            return self._resuming.pop(0)
        if self._unbegun:
            entry = self._study.next()
            if entry is not None:
                self._unbegun -= 1
                return _Trial(entry=entry)
            self._unbegun = 0
        return self._paused.pop(0) if self._paused else None

    def _on_death(self, slot: _Slot, error: Exception) -> None:
        """Run the trial of a process that died again, from its checkpoint.

        Do not if it died too often.
        """
        trial = slot.trial
        self._close(slot)
        if trial is None:
            self._failed_starts += math.isinf(slot.kill_at_s)
            if self._failed_starts > MAX_FAILED_STARTS:
                raise error
            return
        trial.deaths += 1
        if trial.deaths <= self._workload.retries:
            self._resuming.append(trial)
            return
        times = f"{trial.deaths} time{'s'[: trial.deaths != 1]}"
        reason = (
            f"its process or its instance died, {times}; the last one {how_process_ended(error)}"
        )
        self._end(trial, "failed", reason)

    # Messages of trials.

    def _on_report(self, trial: _Trial, message: Message) -> bool:
        """Take a report; return whether the trial goes on in its process."""
        self._record_report(trial, message.report, message.host)
        value = message.report.metrics.get(self._workload.metric)
        reports = trial.entry.trial.reports
        if value is None:
            return True
        if self._population is not None:
            return self._goes_on_in_population(self._population, trial)
        if trial.diverged or self._study.should_stop(trial.number, value, reports):
            self._end(trial, "stopped")
            return False
        return True

    def _goes_on_in_population(self, population: Population, trial: _Trial) -> bool:
        if not population.compares(trial.entry.trial.reports):
            return True
        copy = population.compare(trial.entry)
        if copy is not None:
            trial.entry = self._study.save(copy)
            if copy.trial.value is not None:
                trial.diverged = ""
            self._drop_old_checkpoints(trial)
        elif not self._is_waiting:
            return True
        # If there is no room for all trials, they take turns.
        self._paused.append(trial)
        return False

    def _on_end(self, trial: _Trial, message: Message) -> None:
        report = message.report
        if report.metrics:
            self._record_report(trial, report, message.host)
        elif report.checkpoint is not None:
            self._keep_checkpoint(trial, report.checkpoint)
        self._end(trial, message.status, message.reason, message.traceback)

    def _record_report(self, trial: _Trial, report: Report, host: str) -> None:
        record = trial.entry.trial
        value = report.metrics.get(self._workload.metric, record.value)
        if self._workload.metric in report.metrics:
            self._has_metric = True
            trial.diverged = self._describe_divergence(report, record.reports + 1)
        record = replace(
            record,
            metrics={**record.metrics, **report.metrics},
            # Weights that have become NaN are not a result, however good they were before.
            value=None if trial.diverged else value,
            reports=record.reports + 1,
            host=host or record.host,
        )
        trial.entry = replace(trial.entry, trial=record)
        if report.checkpoint is not None:
            self._keep_checkpoint(trial, report.checkpoint)

    def _describe_divergence(self, report: Report, number: int) -> str:
        """Return why a trial ends at this report, or "" if its metric is finite."""
        name = self._workload.metric
        value = report.metrics[name]
        where = f"report {number}" if report.step is None else f"step {report.step}"
        return "" if math.isfinite(value) else f"{name} is {value} at {where}"

    def _keep_checkpoint(self, trial: _Trial, name: str) -> None:
        trial.checkpoints.append(name)
        trial.entry = self._study.save(
            replace(trial.entry, checkpoint=name, reports=trial.entry.trial.reports)
        )
        self._drop_old_checkpoints(trial)

    def _drop_old_checkpoints(self, trial: _Trial) -> None:
        needed = set(trial.checkpoints[-CHECKPOINTS_KEPT:])
        if self._population is not None:
            open_trials = [
                *self._resuming,
                *self._paused,
                *(slot.trial for slot in self._calls.values()),
            ]
            needed |= self._population.checkpoints
            needed |= {
                each.entry.checkpoint
                for each in open_trials
                if each is not None and each.entry.checkpoint
            }
        for name in [name for name in trial.checkpoints if name not in needed]:
            trial.checkpoints.remove(name)
            self._study.remove_checkpoint(name)

    def _end(self, trial: _Trial, status: str, reason: str = "", traceback: str = "") -> None:
        metric = self._workload.metric
        record = trial.entry.trial
        reported = ", ".join(map(repr, record.metrics)) or "nothing"
        lacks_metric = status == "done" and record.value is None and not trial.diverged
        # A trial without the metric has not succeeded, and one that diverged is no candidate.
        if lacks_metric:
            status = "failed"
            reason = f"it did not report the metric {metric!r}; it reported {reported}"
        elif status != "failed" and trial.diverged:
            status = "stopped"
            reason = trial.diverged
        seconds = 0.0 if trial.began_s is None else time.monotonic() - trial.began_s
        record = replace(
            record, status=status, reason=reason, seconds=round(seconds, 3), time_s=time.time()
        )
        # Written to the disk first, so that readers of the event find it there.
        self._study.finish(replace(trial.entry, trial=record, traceback=traceback))
        if self._population is None:
            entries = self._study.entries
            best = best_of(
                [entry.trial for _, entry in sorted(entries.items())], self._workload.mode
            )
            for number, entry in list(entries.items()):
                if entry.checkpoint is not None and (best is None or number != best.number):
                    self._study.remove_checkpoints(number)
        else:
            # Others may be about to continue from the checkpoints of a trial that has ended.
            self._population.leave(trial.number)
        self._emit(record)
        self._emit_progress()
        # Fail now, before money is spent on all the others, which run the same code.
        if lacks_metric and not self._has_metric:
            raise InvalidRequest(
                f"no trial reported the metric {metric!r}: the first that ended reported "
                f"{reported}; report it (raysm.report), return it, or name another metric"
            )

    def _emit_progress(self) -> None:
        ended = [entry.trial for _, entry in sorted(self._study.entries.items())]
        total = max(len(ended), self._workload.planned_trials)
        self._emit(Progress(phase="sweep", done=len(ended), total=total, unit="trials"))
        best = best_of(ended, self._workload.mode)
        if best is not None and best.value is not None:
            self._emit(
                Metric(name=f"best_{self._workload.metric}", value=best.value, step=len(ended))
            )

    # Time, and trials that wait.

    @property
    def _is_waiting(self) -> bool:
        return bool(self._resuming or self._paused or self._unbegun)

    @property
    def _left_s(self) -> float:
        budget = self._workload.time_budget_s
        return math.inf if budget is None else budget - (time.monotonic() - self._begun_s)

    @property
    def _is_over(self) -> bool:
        return self._left_s <= 0

    def _save_spent(self) -> None:
        self._saved_s = time.monotonic()
        if self._workload.time_budget_s is not None:
            self._study.save_spent(self._saved_s - self._begun_s)


def choose_size(workload: SweepWorkload, nodes: Sequence[Node]) -> TrialSize:
    """Return the resources of one trial.

    By default one GPU for each worker if any instance has one.
    """
    gpus = workload.gpus
    if gpus is None:
        gpus = 1.0 if any(node.gpus for node in nodes) else 0.0
    return TrialSize(workers=workload.workers, cpus=workload.cpus, gpus=gpus)


def trials_at_once(
    nodes: Sequence[dict[str, float]], size: TrialSize, *, most: int | None = None
) -> tuple[int, str]:
    """Return how many trials run at once, and a sentence if that is less than ``most``."""
    # An estimate if workers are larger than half an instance; placement groups decide.
    fit = tasks_at_once(nodes, size.cpus, size.gpus) // size.workers
    if not fit:
        offers = ", ".join(
            f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes
        )
        raise InvalidRequest(
            f"not even one trial fits: it takes {size.workers} worker{'s'[: size.workers != 1]} of "
            f"{size.cpus:g} CPUs and {size.gpus:g} GPUs, and the instances offer "
            f"{offers or 'nothing'}; use fewer workers, cpus or gpus, or larger or more instances"
        )
    if most is None or most <= fit:
        return (fit if most is None else most), ""
    return fit, f"{fit} trials run at once, not {most}: the instances have no room for more"
