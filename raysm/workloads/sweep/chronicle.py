"""What the trials do, as it happens: into the journal, into the events of the job, and back into the search.

What flows in is what Ray Tune calls, what flows out are ``Trial`` events and files; and, once nothing good can come any
more, the reason to end the sweep.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ray.tune import Callback, Stopper

from raysm.contract.events import Event, Metric, Progress, Trial, best_of
from raysm.errors import InvalidRequest
from raysm.request.sweep import SweepWorkload
from raysm.workloads.sweep.journal import Entry, Journal
from raysm.workloads.sweep.schedulers import NOT_FINITE, VALUE, reports_of
from raysm.workloads.sweep.search import Search, Searching
from raysm.workloads.sweep.trial import ENDED, METRICS

__all__ = ["Chronicle", "Gate"]


@dataclass(kw_only=True)
class _Going:
    """A trial that runs."""

    trial: Trial
    began_s: float
    checkpoints: list[str] = field(default_factory=list)
    ended: Mapping[str, Any] | None = None
    is_finite: bool = True

    @property
    def checkpoint(self) -> str | None:
        """The latest one."""
        return self.checkpoints[-1] if self.checkpoints else None


class Chronicle(Callback):  # type: ignore[misc]
    """Writes down what happens.

    Attributes:
        entries: Of all trials that have ended, by their numbers.
        refusal: Why the sweep is to end at once; None while it may go on.
    """

    def __init__(
        self,
        workload: SweepWorkload,
        *,
        search: Search,
        searching: Searching,
        journal: Journal,
        emit_event: Callable[[Event], None],
        earlier: Iterable[Entry] = (),
    ) -> None:
        """Begin with what is known of ``earlier`` trials, of which some were interrupted."""
        self._workload, self._search, self._searching = workload, search, searching
        self._journal, self._emit = journal, emit_event
        last = {entry.trial.number: entry for entry in earlier}
        self.entries = {number: entry for number, entry in last.items() if entry.trial.status != "running"}
        self._interrupted = {number: last[number] for number in sorted(last.keys() - self.entries.keys())}
        self.refusal: InvalidRequest | None = None
        self._is_reported = any(entry.trial.value is not None for entry in self.entries.values())
        self._going: dict[int, _Going] = {}
        self._tell_progress()

    # What Tune calls

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """A trial begins, or begins again."""
        number = self._searching.numbers[trial.trial_id]
        # Begun again after its process died: the journal has it already.
        if number in self._going:
            return
        row = Trial(number=number, status="running", params=self._params(trial))
        restored = trial.config.get("restored")
        interrupted = self._interrupted.pop(number, None)
        if restored is not None and interrupted is not None:
            # Of its last checkpoint: it may have been interrupted at its end, and report nothing more.
            before = interrupted.trial
            row = replace(row, metrics=before.metrics, value=before.value, reports=before.reports, host=before.host)
        self._going[number] = _Going(
            trial=row, began_s=time.monotonic(), checkpoints=[] if restored is None else [restored]
        )
        self._journal.write(row, restored)
        self._emit(row)

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        """A trial has reported, or told its end."""
        # Tune makes a result of its own where a trial ends without one.
        if METRICS not in result:
            return
        going = self._going[self._searching.numbers[trial.trial_id]]
        if VALUE in result or NOT_FINITE in result:
            self._is_reported = True
            going.is_finite = VALUE in result
        going.trial = replace(
            going.trial,
            params=self._params(trial),
            # In a population a trial may be begun again only to find that it is at its end: it reports nothing more.
            metrics=result[METRICS] if ENDED not in result else {**going.trial.metrics, **result[METRICS]},
            # Weights that have become NaN are no result, however good they were before.
            value=result.get(VALUE, going.trial.value) if going.is_finite else None,
            # Not counted here: one whose process dies repeats those since its checkpoint.
            reports=going.trial.reports if ENDED in result else reports_of(trial.config, result),
            host=result.get("host", going.trial.host),
        )
        if ENDED in result:
            going.ended = result

    def on_checkpoint(self, iteration: int, trials: Any, trial: Any, checkpoint: Any, **info: Any) -> None:
        """A checkpoint of a trial is on the head."""
        going = self._going.get(self._searching.numbers[trial.trial_id])
        # Tune tells one again each time that it saves a trial that has made no other since.
        if going is None or checkpoint.path in going.checkpoints:
            return
        going.checkpoints.append(checkpoint.path)
        self._journal.write(going.trial, going.checkpoint)
        # Not by Tune, which would write its whole state down each time that it removes one.
        needed = self._needed(trials)
        for old in going.checkpoints[: -self._workload.checkpoints_kept]:
            if old not in needed:
                going.checkpoints.remove(old)
                self._journal.remove_checkpoint(old)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """A trial is over: it told its end, or was ended early."""
        number = self._searching.numbers[trial.trial_id]
        ended = self._going[number].ended
        if ended is None:
            self._end(number, "stopped", "", "")
        else:
            self._end(number, ended[ENDED], ended.get("reason", ""), ended.get("traceback", ""))

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """A trial's process or instance died more often than it may."""
        times = self._workload.retries + 1
        why = str(trial.get_error() or "").strip().splitlines()
        reason = f"its process or its instance died, {times} time{'s' if times > 1 else ''}"
        self._end(self._searching.numbers[trial.trial_id], "failed", reason, "\n".join(why))

    # What becomes of it

    @property
    def files(self) -> Path:
        """Folder of the trials' checkpoints."""
        return self._journal.files

    @property
    def ended_trials(self) -> list[Trial]:
        """All that have ended, by their numbers."""
        return [self.entries[number].trial for number in sorted(self.entries)]

    def abandon(self) -> None:
        """Take those that still run as ended early, and those that were to go on: the sweep's time is over."""
        for number, entry in self._interrupted.items():
            checkpoints = [] if entry.checkpoint is None else [entry.checkpoint]
            self._going[number] = _Going(trial=entry.trial, began_s=time.monotonic(), checkpoints=checkpoints)
        self._interrupted = {}
        for number in sorted(self._going):
            self._end(number, "stopped", "", "")

    def _needed(self, trials: Any) -> set[str]:
        """Return the checkpoints from which trials are to go on: in a population they may be others'."""
        if self._workload.stop is None or not self._workload.stop.takes_turns:
            return set()
        # What Tune may hand to another trial at its next turn.
        return {trial.checkpoint.path for trial in trials if trial.checkpoint is not None}

    def _params(self, trial: Any) -> Mapping[str, Any]:
        # From Tune's, not the search's: a population changes them on the way.
        return dict(trial.config["params"])

    def _end(self, number: int, status: str, reason: str, traceback: str) -> None:
        going = self._going.pop(number, None)
        if going is None:
            return
        # A trial that reported nothing by which it could be compared has not succeeded, nor has one that diverged.
        if (status == "done" and going.trial.value is None) or (status == "stopped" and not going.is_finite):
            status, reason = "failed", self._lacks_metric(going)
        trial = replace(
            going.trial,
            status=status,
            reason=reason,
            seconds=round(time.monotonic() - going.began_s, 3),
            time_s=time.time(),
        )
        # On the disk before it is told: who reads the event finds it there.
        self.entries[number] = self._journal.write(trial, going.checkpoint, traceback)
        self._search.tell(trial)
        self._drop_checkpoints()
        self._emit(trial)
        self._tell_progress()

    def _lacks_metric(self, going: _Going) -> str:
        """Return why a trial without the metric failed; where no trial has it, the sweep is refused."""
        if not going.is_finite:
            return f"the metric {self._workload.metric!r} was not finite when it was reported last"
        # Its neighbours are named: most often the metric is there by a slightly other name.
        others = ", ".join(map(repr, going.trial.metrics)) or "nothing"
        reason = f"it did not report the metric {self._workload.metric!r}; it reported {others}"
        # Before money is spent on all the others, which run the same lines.
        if not self._is_reported:
            self.refusal = InvalidRequest(
                f"no trial reported the metric {self._workload.metric!r}: the first that ended reported {others}; "
                "report it (raysm.report), return it, or name another metric"
            )
        return reason

    def _drop_checkpoints(self) -> None:
        """Remove the checkpoints of all ended trials but the best one."""
        # In a population those of an ended trial may be what another one is about to go on from.
        if self._workload.stop is not None and self._workload.stop.needs_checkpoints:
            return
        best = best_of(self.ended_trials, self._workload.mode)
        for number, entry in self.entries.items():
            if entry.checkpoint is not None and (best is None or number != best.number):
                self._journal.remove_checkpoints(entry.checkpoint)
                self.entries[number] = self._journal.write(entry.trial, traceback=entry.traceback)

    def _tell_progress(self) -> None:
        total = self._workload.planned_trials
        self._emit(Progress(phase="sweep", done=len(self.entries), total=total, unit="trials"))
        best = best_of(self.ended_trials, self._workload.mode)
        if best is not None and best.value is not None:
            self._emit(Metric(name=f"best_{self._workload.metric}", value=best.value, step=len(self.entries)))


class Gate(Stopper):  # type: ignore[misc]
    """Ends all trials once the chronicle has a reason to."""

    def __init__(self, chronicle: Chronicle) -> None:
        """Ask ``chronicle``."""
        self._chronicle = chronicle

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """End no single trial."""
        return False

    def stop_all(self) -> bool:
        """Whether all are to end."""
        # Asked after each result; Tune then ends all trials, and no further one begins.
        return self._chronicle.refusal is not None
