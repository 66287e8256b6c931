"""What the next trial tries: Optuna's study, as the searcher that Ray Tune asks.

What flows in are a space, or a function that draws from a trial of Optuna's, and what trials have found; what flows out
are the parameters of the next one. Ray's own searcher for Optuna is not used: it knows neither steps on a logarithm's
scale nor the numbers of trials, and learns nothing from earlier ones where a function draws.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from ray.tune.search import Searcher

from raysm.contract.events import Trial
from raysm.errors import InvalidRequest
from raysm.request.codec import to_json
from raysm.request.sweep import SweepWorkload

__all__ = ["Draw", "Search", "Searching", "Waiting", "drawing_by"]

Draw = Callable[[Any], Mapping[str, Any]]
"""Draws all parameters from a trial of Optuna's."""

SAMPLERS: Mapping[str, Callable[[int | None], BaseSampler]] = {
    "optuna": lambda seed: TPESampler(seed=seed),
    "random": lambda seed: RandomSampler(seed=seed),
    # Every combination waits in the study's queue: there is nothing to sample.
    "grid": lambda seed: RandomSampler(seed=seed),
}
"""What chooses, by the names of ``request.sweep.Search``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """A trial whose parameters are known before it begins."""

    params: Mapping[str, Any]
    """What it tries."""
    number: int | None = None
    """Its number where it has one: an interrupted one keeps its own."""
    restored: str | None = None
    """Path, among the head's files, of the checkpoint that it goes on from."""
    reports: int = 0
    """How often it had reported by then."""


@dataclass(kw_only=True)
class Search:
    """A study, and who draws from it."""

    workload: SweepWorkload
    """What is asked for."""
    draw: Draw
    """Draws the parameters."""
    study: optuna.Study
    """What has been learned."""
    next_number: int = 0
    """Of the next trial that has none."""
    waiting: list[Waiting] = field(default_factory=list)
    """Trials that come first."""
    drawn: dict[int, optuna.Trial] = field(default_factory=dict)
    """Optuna's trial of each unfinished one whose parameters it has drawn."""

    @classmethod
    def begin(
        cls,
        workload: SweepWorkload,
        draw: Draw | None,
        finished: Sequence[Trial] = (),
        interrupted: Sequence[Waiting] = (),
    ) -> "Search":
        """Begin a study that knows the trials of an earlier sweep, and those of this one that are done or interrupted.

        Those that were interrupted come first, each with its number.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # Of a sweep that goes on, another one: the same would draw what has been tried, or at least begun.
        seed = None if workload.seed is None else workload.seed + len(finished) + len(interrupted)
        # In memory: the journal has what counts, in a form that does not depend on Optuna's version.
        study = optuna.create_study(
            direction="minimize" if workload.mode == "min" else "maximize",
            sampler=SAMPLERS[workload.chosen_search](seed),
        )
        search = cls(workload=workload, draw=draw or _drawing(workload), study=study)
        for earlier in workload.warm_start:
            search._learn(earlier.params, earlier.value)
        for trial in finished:
            search._learn(trial.params, trial.value)
        # Numbers go on: a trial of after the interruption is not mistaken for one of before.
        search.next_number = max((trial.number + 1 for trial in finished), default=0)
        if workload.chosen_search == "grid":
            search.waiting = _remaining(workload, [trial.params for trial in finished])
        search._again(interrupted)
        return search

    def _again(self, interrupted: Sequence[Waiting]) -> None:
        params = [item.params for item in interrupted]
        # First those that have begun: their checkpoints are there.
        self.waiting = [*interrupted, *(item for item in self.waiting if item.params not in params)]
        numbers = [item.number + 1 for item in interrupted if item.number is not None]
        self.next_number = max([self.next_number, *numbers])

    def next(self) -> dict[str, Any]:
        """Return the next trial: its ``number``, its ``params``, and what it goes on from."""
        first = self.waiting.pop(0) if self.waiting else Waiting(params={})
        if first.params:
            # Enqueued, not set: Optuna then learns from its value as from those that it has drawn.
            self.study.enqueue_trial(dict(first.params))
        number = first.number
        if number is None:
            number, self.next_number = self.next_number, self.next_number + 1
        trial = self.study.ask()
        params = dict(self.draw(trial))
        if not first.params or _has_drawn(trial, params, first.params):
            self.drawn[number] = trial
        else:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        # A function may have made them of what it drew by other names: what was begun goes on with what it began with.
        if first.params and to_json(params) != first.params:
            params = dict(first.params)
        return {"number": number, "params": params, "restored": first.restored, "reports": first.reports}

    def tell(self, trial: Trial) -> None:
        """Learn how a trial ended."""
        # Kept by number since Tune knows trials by names of its own.
        suggested = self.drawn.pop(trial.number, None)
        if suggested is None:
            return
        if trial.value is None or trial.status == "failed":
            self.study.tell(suggested, state=optuna.trial.TrialState.FAIL)
        elif trial.status == "stopped":
            # What it had reached, and after how many reports: TPE ranks those that went on above it.
            suggested.report(trial.value, trial.reports)
            self.study.tell(suggested, state=optuna.trial.TrialState.PRUNED)
        else:
            self.study.tell(suggested, trial.value)

    def _learn(self, params: Mapping[str, Any], value: float | None) -> None:
        if value is None:
            return
        self.study.enqueue_trial(dict(params))
        trial = self.study.ask()
        if _has_drawn(trial, self.draw(trial), params):
            self.study.tell(trial, value)
        else:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)


class Searching(Searcher):  # type: ignore[misc]
    """A ``Search`` as Ray Tune asks it; which of Tune's trials is which of ours stays here."""

    def __init__(self, search: Search) -> None:
        """Ask ``search``; what trials report comes to it by another way, with their numbers."""
        super().__init__()
        self._search = search
        self.numbers: dict[str, int] = {}
        self.params: dict[int, Mapping[str, Any]] = {}

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """Return the config of Tune's next trial."""
        config = self._search.next()
        number = config.pop("number")
        self.numbers[trial_id] = number
        self.params[number] = config["params"]
        return config

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Learn nothing here."""

    def save(self, checkpoint_path: str) -> None:
        """Keep nothing of Tune's: what a sweep goes on from are its own records, which are no pickles."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing was kept."""


def _has_drawn(trial: optuna.Trial, drawn: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
    """Whether these parameters are of what the trial drew: else their value would teach the study what is wrong."""
    # A function may return what it drew under another name, or something that it made of it.
    draws = [*trial.params.items(), *((name, value) for name, value in drawn.items() if name in params)]
    return all(name in params and to_json(value) == to_json(params[name]) for name, value in draws)


def _drawing(workload: SweepWorkload) -> Draw:
    def draw(trial: Any) -> dict[str, Any]:
        return {name: parameter.suggest(name, trial) for name, parameter in workload.space.items()}

    return draw


def drawing_by(function: Callable[[Any], Any], name: str) -> Draw:
    """Return what draws by a function of the user's.

    It returns the parameters, or returns nothing and draws them by names: then those are it.
    """

    def draw(trial: Any) -> dict[str, Any]:
        drawn = function(trial)
        params = dict(trial.params) if drawn is None else drawn
        if not isinstance(params, Mapping) or not all(isinstance(key, str) for key in params):
            raise InvalidRequest(f"the space function {name} must return parameters by name, or None, got {drawn!r}")
        return dict(params)

    return draw


def _remaining(workload: SweepWorkload, done: Sequence[Mapping[str, Any]]) -> list[Waiting]:
    names = list(workload.space)
    grids = [workload.space[name].grid() for name in names]
    every = [dict(zip(names, values, strict=True)) for values in itertools.product(*grids)]
    # By what they tried, not by their numbers: the grid may have grown meanwhile.
    return [Waiting(params=params) for params in every if params not in done]
