"""The memory of a sweep: an Optuna study in a journal file.

The checkpoints of its trials are next to it. The journal lies among the job's checkpoints if it has
any, so an interrupted sweep continues where it stopped.
"""

import hashlib
import json
import math
import random
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend, JournalStorage
from optuna.trial import TrialState

from raysm.core.protocol.events import Trial, where_diverged
from raysm.core.request.codec import from_json, to_json
from raysm.errors import InvalidRequest
from raysm.features.sweep.request import Asha, Median, Pbt, SweepWorkload
from raysm.features.sweep.space import Parameter

Draw = Callable[[Any], Mapping[str, Any]]

ENTRY = "entry"
EARLIER = "earlier"
SPENT = "spent_s"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    trial: Trial
    checkpoint: str | None = None
    """Name, below the study's ``files``, of the folder that the trial continues from."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of that folder's files by name: a checkpoint that came back incomplete is not used."""
    reports: int = 0
    """Reports that the trial had made when it wrote the checkpoint."""
    traceback: str = ""


class Study:
    def __init__(self, workload: SweepWorkload, draw: Draw | None, root: Path) -> None:
        """Open the sweep's study in ``root``, or create it.

        Raises:
            InvalidRequest: another sweep's trials are there. Its checkpoints would be brought back,
                and paid for, at each start.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._workload = workload
        self._draw = draw or (
            lambda trial: {name: item.suggest(name, trial) for name, item in workload.space.items()}
        )
        self._folder = root / hash_study(workload)
        root.mkdir(parents=True, exist_ok=True)
        if any(other != self._folder and other.is_dir() for other in root.iterdir()):
            raise InvalidRequest(
                "the trials to resume are of another sweep: its parameters, metric, mode, search, "
                "seed or arguments differ",
                remedy=(
                    "resume with the same ones, or send this sweep without resume; in Python, "
                    "warm_start=… of the earlier job lets it learn from those trials"
                ),
            )
        self.files = self._folder / "files"
        self.files.mkdir(parents=True, exist_ok=True)
        self._study = optuna.create_study(
            storage=JournalStorage(_journal(self._folder / "journal.log")),
            study_name="sweep",
            load_if_exists=True,
            direction="minimize" if workload.mode == "min" else "maximize",
            pruner=_pruner(workload),
        )
        known = self._study.trials
        # Another seed for each run: the same one would draw again what has been tried.
        seed = None if workload.seed is None else workload.seed + len(known)
        is_random = workload.chosen_search != "optuna"
        self._study.sampler = (
            optuna.samplers.RandomSampler(seed)
            if is_random
            else optuna.samplers.TPESampler(seed=seed)
        )
        if not known:
            for earlier in workload.warm_start:
                self._learn(earlier.params, earlier.value)
            known = self._study.trials
        self._earlier = sum(EARLIER in trial.user_attrs for trial in known)
        self._trials: dict[int, optuna.Trial] = {}
        self.entries: dict[int, Entry] = {}
        self.interrupted: list[Entry] = []
        for trial in known[self._earlier :]:
            self._restore(trial)
        tried = [entry.trial.params for entry in (*self.entries.values(), *self.interrupted)]
        # Compared by parameters and not by number, because the grid may have grown meanwhile.
        space = workload.space if workload.chosen_search == "grid" else {}
        self._grid = (each for each in _combinations(space) if each not in tried)

    def next(self) -> Entry | None:
        """Begin the next trial; None if a grid has no further combination."""
        if self._workload.chosen_search == "grid":
            params = next(self._grid, None)
            if params is None:
                return None
            self._study.enqueue_trial(params)
        trial = self._study.ask()
        number = trial.number - self._earlier
        self._trials[number] = trial
        return Entry(trial=Trial(number=number, status="running", params=dict(self._draw(trial))))

    def save(self, entry: Entry) -> Entry:
        if entry.checkpoint is not None:
            entry = replace(entry, sizes=_sizes(self.files / entry.checkpoint))
        self._trials[entry.trial.number].set_user_attr(ENTRY, to_json(entry))
        return entry

    def finish(self, entry: Entry) -> None:
        # The entry first: if the process is killed before ``tell``, the next run continues here.
        number = entry.trial.number
        self.entries[number] = self.save(entry)
        trial = self._trials.pop(number)
        if where_diverged(entry.trial):
            # Optuna takes it for the worst trial, where one that failed would teach it nothing.
            _report(trial, math.nan, max(1, entry.trial.reports))
            self._study.tell(trial, state=TrialState.PRUNED)
        elif entry.trial.value is None or entry.trial.status == "failed":
            self._study.tell(trial, state=TrialState.FAIL)
        elif entry.trial.status == "stopped":
            # Optuna takes the last report as the value, and ranks it below the trials that
            # continued.
            _report(trial, entry.trial.value, max(1, entry.trial.reports))
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            self._study.tell(trial, entry.trial.value)

    def should_stop(self, number: int, value: float, reports: int) -> bool:
        """Record a trial's value; return whether the trial ends after this many reports."""
        rule = self._workload.stop
        trial = self._trials[number]
        if rule is None or isinstance(rule, Pbt):
            return False
        _report(trial, value, reports)
        if isinstance(rule, Asha) and reports >= rule.most_reports:
            return True
        return bool(trial.should_prune())

    @property
    def spent_s(self) -> float:
        return float(self._study.user_attrs.get(SPENT, 0.0))

    def save_spent(self, seconds: float) -> None:
        self._study.set_user_attr(SPENT, seconds)

    def remove_checkpoint(self, name: str) -> None:
        shutil.rmtree(self.files / name, ignore_errors=True)

    def remove_checkpoints(self, number: int) -> None:
        shutil.rmtree(self.files / str(number), ignore_errors=True)
        # Changed in memory only: Optuna does not change finished trials, and the next run sees that
        # the folder is gone.
        self.entries[number] = replace(self.entries[number], checkpoint=None)

    def _restore(self, frozen: optuna.trial.FrozenTrial) -> None:
        number = frozen.number - self._earlier
        written = frozen.user_attrs.get(ENTRY)
        entry = None if written is None else from_json(Entry, written, "trial")
        if entry is not None and not self._has_whole_checkpoint(entry):
            # The checkpoint was deleted, or did not come back complete.
            entry = replace(entry, checkpoint=None, sizes={}, reports=0)
        if entry is not None and frozen.state.is_finished():
            self.entries[number] = entry
            return
        trial = self._trials[number] = optuna.Trial(self._study, frozen._trial_id)
        if entry is None:
            # The run was killed before the parameters were saved; Optuna draws the same ones again.
            entry = Entry(
                trial=Trial(number=number, status="running", params=dict(self._draw(trial)))
            )
        if entry.trial.status == "running":
            self.interrupted.append(entry)
        else:
            self.finish(entry)

    def _has_whole_checkpoint(self, entry: Entry) -> bool:
        folder = self.files / str(entry.checkpoint)
        # The journal comes back from a bucket: its names must not lead to other folders, which
        # would be removed.
        is_inside = (
            folder.resolve().is_relative_to(self.files.resolve())
            and folder.resolve() != self.files.resolve()
        )
        return is_inside and _sizes(folder) == dict(entry.sizes)

    def _learn(self, params: Mapping[str, Any], value: float) -> None:
        self._study.enqueue_trial(dict(params))
        trial = self._study.ask()
        trial.set_user_attr(EARLIER, True)
        drawn = self._draw(trial)
        # A function may return what it drew under other names, or values computed from it. Then the
        # value says nothing about what was drawn.
        draws = [
            *trial.params.items(),
            *((name, item) for name, item in drawn.items() if name in params),
        ]
        if all(name in params and to_json(item) == to_json(params[name]) for name, item in draws):
            self._study.tell(trial, value)
        else:
            self._study.tell(trial, state=TrialState.FAIL)


class Population:
    """Population based training, which lets the worst trials continue from the best.

    They get the weights of the best, and varied parameters.
    """

    def __init__(self, rule: Pbt, workload: SweepWorkload) -> None:
        self._rule = rule
        self._workload = workload
        # Its own generator, because user code seeds the global one.
        self._rng = random.Random(workload.seed)
        self._members: dict[int, Entry] = {}

    @property
    def checkpoints(self) -> set[str]:
        return {
            entry.checkpoint for entry in self._members.values() if entry.checkpoint is not None
        }

    def compares(self, reports: int) -> bool:
        return reports % self._rule.every == 0

    def compare(self, entry: Entry) -> Entry | None:
        """Record a trial's state.

        If it is among the worst, return how it continues: as a varied copy of a good one.
        """
        number = entry.trial.number
        self._members[number] = entry
        ranked = sorted(self._members, key=self._rank)
        count = min(math.ceil(len(ranked) * self._rule.share), len(ranked) // 2)
        if not count or number not in ranked[-count:]:
            return None
        donor = self._members[self._rng.choice(ranked[:count])]
        space = self._workload.space
        params = {
            name: space[name].vary(value, self._rng) for name, value in donor.trial.params.items()
        }
        copied = replace(donor.trial, number=number, params=params, host=entry.trial.host)
        return replace(donor, trial=copied)

    def leave(self, number: int) -> None:
        self._members.pop(number, None)

    def _rank(self, number: int) -> tuple[bool, float]:
        value = self._members[number].trial.value
        sign = 1 if self._workload.mode == "min" else -1
        return value is None, sign * (value or 0.0)


def drawing_by(function: Callable[[Any], Any], name: str) -> Draw:
    """Return a ``Draw`` around a user's function.

    The function returns the parameters, or nothing and draws them by name.
    """

    def draw(trial: Any) -> dict[str, Any]:
        drawn = function(trial)
        params = dict(trial.params) if drawn is None else drawn
        if not isinstance(params, Mapping) or not all(isinstance(key, str) for key in params):
            raise InvalidRequest(
                f"the space function {name} must return parameters by name, or None, got {drawn!r}"
            )
        return dict(params)

    return draw


def hash_study(workload: SweepWorkload) -> str:
    # The title counts too, because another function over the same space has nothing to continue
    # from.
    content = {name: to_json(getattr(workload, name, ())) for name in workload.identity} | {
        "title": workload.title
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


class _NoLock:
    """One process writes the journal.

    A lock file that a killed job left behind would cost the next one 30 s.
    """

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return None


def _journal(path: Path) -> BaseJournalBackend:
    # A copy in S3 may end within a line; Optuna would refuse to read lines that are appended to it.
    content = path.read_bytes() if path.exists() else b""
    if content and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])
    return JournalFileBackend(str(path), lock_obj=_NoLock())


def _report(trial: optuna.Trial, value: float, reports: int) -> None:
    with warnings.catch_warnings():
        # A trial that continues from a checkpoint repeats some reports; Optuna keeps the first
        # value of each.
        warnings.simplefilter("ignore")
        trial.report(value, reports)


def _pruner(workload: SweepWorkload) -> Any:
    rule = workload.stop
    if isinstance(rule, Asha):
        return optuna.pruners.SuccessiveHalvingPruner(
            min_resource=rule.grace, reduction_factor=rule.factor
        )
    if isinstance(rule, Median):
        return optuna.pruners.MedianPruner(
            n_startup_trials=rule.least_trials, n_warmup_steps=rule.grace
        )
    return optuna.pruners.NopPruner()


def _combinations(space: Mapping[str, Parameter]) -> Iterator[dict[str, Any]]:
    """Yield the combinations of a grid."""
    # Not by itertools.product, which first lists all values of each range.
    if not space:
        yield {}
        return
    (name, parameter), *others = space.items()
    for value in parameter.each():
        for rest in _combinations(dict(others)):
            yield {name: value, **rest}


def _sizes(folder: Path) -> dict[str, int]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
