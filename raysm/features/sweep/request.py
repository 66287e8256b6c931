"""Sweeps as workloads: many trials of a function or a script on one cluster.

Each has other parameters.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, cast, get_args

from raysm.core.request.codec import from_json
from raysm.core.request.options import check_counts, optional
from raysm.core.request.programs import Pickled, Program, script_at
from raysm.core.request.workload import (
    Parameters,
    ScriptWorkload,
    Workload,
    Wrapper,
    of_fields,
    plain,
)
from raysm.errors import InvalidRequest
from raysm.features.sweep.space import Parameter, parse_space


class _Rule:
    __slots__ = ()

    searches: ClassVar[tuple[str, ...]] = ("optuna", "random", "grid")
    """The searches that the rule can be combined with, the default first."""
    service_rule: ClassVar[str | None] = None
    """TrainingJobEarlyStoppingType of a tuning job with the same rule; None if the service has
    none."""
    needs_checkpoints: ClassVar[bool] = False
    """True if each report needs a checkpoint."""
    takes_turns: ClassVar[bool] = False
    """True if all trials form one population, and take turns if there is no room for all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asha(_Rule):
    """Asynchronous successive halving: after 1, 4, 16 … reports only the best quarter goes on.

    Optuna's ``SuccessiveHalvingPruner``; https://arxiv.org/abs/1810.05934.
    """

    kind: ClassVar[str] = "asha"

    grace: int = 1
    """Reports after which trials are compared first."""
    # As in the paper.
    factor: int = 4
    """One in ``factor`` trials goes on, to ``factor`` times as many reports; at least 2."""
    most_reports: int = 100_000
    """Each trial ends after this many reports."""

    def __post_init__(self) -> None:
        check_counts("Asha", 1, grace=self.grace)
        check_counts("Asha", 2, factor=self.factor)
        check_counts("Asha", self.grace, most_reports=self.most_reports)


@dataclass(frozen=True, kw_only=True, slots=True)
class Median(_Rule):
    """Ends a trial whose best value is worse than the median of done trials after as many reports.

    This is Optuna's ``MedianPruner``.
    """

    kind: ClassVar[str] = "median"
    service_rule: ClassVar[str | None] = "Auto"

    grace: int = 1
    """Reports after which a trial is compared first."""
    least_trials: int = 3
    """Done trials that the median needs at least."""

    def __post_init__(self) -> None:
        check_counts("Median", 1, grace=self.grace, least_trials=self.least_trials)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pbt(_Rule):
    """Population based training, which lets the worst trials continue from the best.

    They get the weights of the best, and varied parameters. https://arxiv.org/abs/1711.09846. Each
    report needs a checkpoint. All trials are one population: if there is no room for all of them,
    they take turns, each until its next comparison.
    """

    kind: ClassVar[str] = "pbt"
    # A trial's parameters change while it runs, so a search would learn wrong values.
    searches: ClassVar[tuple[str, ...]] = ("random",)
    needs_checkpoints: ClassVar[bool] = True
    # A trial that began after the others ended would have nothing to compare itself with.
    takes_turns: ClassVar[bool] = True

    every: int = 1
    """Reports between two comparisons."""
    # The paper uses a fifth.
    share: float = 0.25
    """Share of the trials that counts as the worst, and as the best; above 0 and at most 0.5."""

    def __post_init__(self) -> None:
        check_counts("Pbt", 1, every=self.every)
        if type(self.share) not in (int, float) or not 0 < self.share <= 0.5:
            raise InvalidRequest(f"Pbt: share must be above 0 and at most 0.5, got {self.share!r}")


Rule: TypeAlias = Asha | Median | Pbt
KINDS: Mapping[str, type[Any]] = {kind.kind: kind for kind in get_args(Rule)}


def parse_rule(written: object) -> Rule | None:
    """Return the rule of an option.

    It is a rule, the name of a rule with default numbers, or JSON. None ends no trial.
    """
    if written is None or isinstance(written, tuple(KINDS.values())):
        return written  # type: ignore[return-value]  # KINDS has exactly those
    name = written.get("kind") if isinstance(written, Mapping) else written
    if not isinstance(name, str) or name not in KINDS:
        rules = ", ".join(map(repr, KINDS))
        raise InvalidRequest(
            f"Sweep: there is no rule stop={written!r}; there are {rules} and None"
        )
    data = dict(written) if isinstance(written, Mapping) else {}
    rule: Rule = from_json(KINDS[name], data, "stop")
    return rule


Search: TypeAlias = Literal["optuna", "random", "grid"]
"""``optuna`` learns from earlier trials (TPE), ``random`` does not, ``grid`` tries each combination
once."""
MAX_TRIALS = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Earlier:
    """A trial of an earlier sweep, which the search starts with."""

    params: Mapping[str, Any]
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepWorkload(Workload):
    """The options of every sweep.

    Raises:
        InvalidRequest: A range, a rule or a number is not allowed, or two options contradict each
            other.
    """

    runner: ClassVar[str] = "raysm.features.sweep.runner:SweepRunner"
    reader: ClassVar[str] = "raysm.features.sweep.client:SweepResult"
    label: ClassVar[str] = "the sweep"
    keeps: ClassVar[str] = "the table of its trials, and what the best one left"
    packages: ClassVar[tuple[str, ...]] = ("optuna", "pyarrow", "cloudpickle")
    # Instances whose image lacks Optuna install it.
    extra: ClassVar[str | None] = "sweep"
    identity: ClassVar[tuple[str, ...]] = ("space", "metric", "mode", "search", "seed", "args")

    space: Mapping[str, Parameter] = field(default_factory=dict)
    """The range of each parameter; empty if a function draws them."""
    metric: str
    """The metric to optimize, as the trials report it."""
    mode: Literal["min", "max"]
    """The direction: ``min`` keeps the lowest value of the metric, ``max`` the highest. It has no
    default."""
    trials: int = 20
    """Number of trials, at least 1."""
    search: Search | None = None
    """Chooses the parameters; None is ``optuna``, or ``random`` with ``stop="pbt"``."""
    stop: Rule | None = None
    """Ends trials early: ``"asha"``, ``"median"``, ``"pbt"``, or one of the classes with
    numbers."""
    workers: int = 1
    """Processes of one trial, at least 1. Several have ranks and a process group of torch."""
    cpus: float = optional(1.0, result=False)
    """CPUs of each worker, above 0."""
    gpus: float | None = None
    """GPUs of each worker; None is one if any instance has GPUs, else 0. With 0.5 two trials share
    one."""
    concurrency: int | None = optional(None, result=False)
    """Maximum number of trials at a time; None is as many as the instances have room for."""
    time_budget_s: float | None = None
    """Seconds after which all trials end. Time of runs before an interruption counts, the time
    between does not."""
    retries: int = optional(3, result=False)
    """Number of restarts of a trial whose process or instance died. A trial that raises is not
    restarted."""
    reuse: bool = optional(True, result=False)
    """True lets a process run several trials in turn. A later trial finds the imports and the
    module variables of the earlier ones. A process takes seconds to start, so the first may run all
    of very short trials."""
    seed: int | None = None
    """Seed of the search and of each trial's random numbers; None is a new one each time."""
    warm_start: tuple[Earlier, ...] = ()

    def __post_init__(self) -> None:
        # Texts such as "asha" become values here.
        object.__setattr__(self, "stop", parse_rule(self.stop))
        earlier = tuple(
            item if isinstance(item, Earlier) else from_json(Earlier, item, "warm_start")
            for item in self.warm_start
        )
        object.__setattr__(self, "warm_start", earlier)
        # An empty space is an error, unless a function draws it.
        if self.space or not self.draws_itself:
            object.__setattr__(self, "space", parse_space(self.space))
        if not isinstance(self.metric, str) or not self.metric:
            raise InvalidRequest(
                f"Sweep: metric is the name of what the trials report, 'loss', got {self.metric!r}"
            )
        for name, choices in (
            ("mode", ("min", "max")),
            ("search", (None, "optuna", "random", "grid")),
        ):
            if getattr(self, name) not in choices:
                raise InvalidRequest(
                    f"Sweep: {name} is one of {', '.join(map(repr, choices))}, got "
                    f"{getattr(self, name)!r}"
                )
        check_counts("Sweep", 1, trials=self.trials, workers=self.workers)
        check_counts("Sweep", 1, or_none=True, concurrency=self.concurrency)
        check_counts("Sweep", 0, retries=self.retries)
        check_counts("Sweep", 0, or_none=True, seed=self.seed)
        if self.trials > MAX_TRIALS:
            raise InvalidRequest(
                f"Sweep: trials must be at most {MAX_TRIALS:,}, got {self.trials:,}"
            )
        for name, number in (("cpus", self.cpus), ("time_budget_s", self.time_budget_s)):
            if number is None and name != "cpus":
                continue
            if type(number) not in (int, float) or not 0 < cast(float, number) < math.inf:
                raise InvalidRequest(f"Sweep: {name} must be a number above 0, got {number!r}")
        if self.gpus is not None and (
            type(self.gpus) not in (int, float) or not 0 <= self.gpus < math.inf
        ):
            raise InvalidRequest(
                f"Sweep: gpus must be a number of at least 0, or None, got {self.gpus!r}"
            )
        self._check_search()

    @property
    def draws_itself(self) -> bool:
        """True if a pickled function draws the parameters from an Optuna trial."""
        return False

    @property
    def chosen_search(self) -> Search:
        if self.search is not None:
            return self.search
        # With PBT parameters change during a trial, so TPE would learn wrong values.
        default: Any = "optuna" if self.stop is None else self.stop.searches[0]
        return default  # type: ignore[no-any-return]

    @property
    def combinations(self) -> int:
        """Number of combinations of a grid; InvalidRequest if they are infinite."""
        return math.prod(parameter.count() for parameter in self.space.values())

    @property
    def planned_trials(self) -> int:
        return min(self.trials, self.combinations) if self.chosen_search == "grid" else self.trials

    def describe_part_of_grid(self, trials: int) -> str:
        is_part = self.chosen_search == "grid" and trials < self.combinations
        return f", {trials:,} of {self.combinations:,} combinations" if is_part else ""

    @property
    def direction(self) -> str:
        return "lowest" if self.mode == "min" else "highest"

    @property
    def plan(self) -> str:
        """Trials, search, metric, direction and parameters in one line.

        The line is printed before the first trial.
        """
        drawn = ", ".join(f"{name}={plain(name, str(item))}" for name, item in self.space.items())
        count = self.planned_trials
        trials = f"{count} trial{'s'[: count != 1]}{self.describe_part_of_grid(count)}"
        learned = f" after {len(self.warm_start):,} earlier ones" if self.warm_start else ""
        return (
            f"sweep: {trials}{learned}, search {self.chosen_search}, keeps the {self.direction} "
            f"{self.metric}; parameters: {drawn or 'drawn by a function'}"
        )

    @property
    def parameters(self) -> Parameters:
        """The options for tables of experiments, with ranges and rules as text."""
        texts: dict[str, Any] = {"space": {name: str(item) for name, item in self.space.items()}}
        if self.stop is not None:
            texts["stop"] = str(self.stop)
        if self.warm_start:
            count = len(self.warm_start)
            texts["warm_start"] = f"{count:,} trial{'s'[: count != 1]}"
        return of_fields(self, **texts)

    def _check_search(self) -> None:
        if self.stop is not None:
            self._check_rule(self.stop, f"Sweep: stop={self.stop.kind!r}")
        if self.chosen_search == "grid":
            if not self.space:
                raise InvalidRequest(
                    "Sweep: search='grid' needs a space of values, not a function that draws them"
                )
            # Raises InvalidRequest before the job is sent if a range has infinitely many values.
            _ = self.combinations
        for earlier in self.warm_start:
            # Optuna takes only trials with exactly the parameters of the space.
            unknown = sorted(set(self.space) ^ set(earlier.params)) if self.space else []
            if unknown:
                raise InvalidRequest(
                    f"Sweep: warm_start has trials of another space: {unknown[0]!r} is in one of "
                    "the two alone; begin without warm_start, or with the same parameters"
                )
            # Otherwise Optuna would refuse it in the job, after the cluster has formed.
            outside = [
                name for name, item in self.space.items() if not item.contains(earlier.params[name])
            ]
            if outside:
                raise InvalidRequest(
                    "Sweep: warm_start has a trial with "
                    f"{outside[0]}={earlier.params[outside[0]]!r}, which lies outside of "
                    f"{self.space[outside[0]]}; leave out such trials, or widen the range"
                )

    def _check_rule(self, rule: Rule, stop: str) -> None:
        if self.chosen_search not in rule.searches:
            searches = " or ".join(map(repr, rule.searches))
            raise InvalidRequest(f"{stop} goes with search={searches}, got search={self.search!r}")
        if rule.needs_checkpoints and not self.space:
            raise InvalidRequest(
                f"{stop} varies parameters within their ranges: give the space as ranges"
            )
        if rule.takes_turns and self.trials < 2:
            raise InvalidRequest(
                f"{stop} compares the trials of a population: take at least 2, got trials=1"
            )
        if rule.takes_turns and self.concurrency is not None:
            raise InvalidRequest(
                f"{stop} goes without concurrency: all {self.trials} trials are one population, "
                "which takes turns if there is no room for all; got "
                f"concurrency={self.concurrency}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionSweep(Pickled, SweepWorkload):
    """Trials of a function, pickled by cloudpickle into the payload; ``raysm.Sweep`` makes it."""

    kind: ClassVar[str] = "function_sweep"
    wrapper: ClassVar[Wrapper | None] = Wrapper(
        "function", "raysm.Sweep(train, space={…}, metric='loss', mode='min')"
    )

    name: str
    python: str
    takes_config: bool = False
    """True if the function takes all parameters as one mapping instead of arguments."""
    draws: bool = False

    @property
    def draws_itself(self) -> bool:
        return self.draws


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptSweep(ScriptWorkload, SweepWorkload):
    """Trials of a script, each of which runs it as a program.

    Its parameters come as ``--NAME=VALUE`` before its arguments.
    """

    kind: ClassVar[str] = "script_sweep"

    script: str
    args: tuple[str, ...] = ()
    source_dir: str | None = None
    command: bool = False
    """``script`` is a command of the image, as in ``raysm.Script``."""

    def __post_init__(self) -> None:
        # super() would look for the class that slots=True has replaced.
        SweepWorkload.__post_init__(self)
        self.check_script("Sweep")
        if self.workers != 1:
            raise InvalidRequest(
                f"Sweep: a script runs in one process a trial, got workers={self.workers}; sweep a "
                "function, or let the script start its own"
            )


def require_sweep(workload: Workload) -> SweepWorkload:
    if not isinstance(workload, SweepWorkload):
        raise InvalidRequest(f"tune: the service tunes sweeps, and this is {workload.label}")
    return workload


def swept_script(train: object) -> Program | None:
    """Return the script in the first argument of a sweep, None if it is not one.

    The argument is a path or a ``Script``.
    """
    if isinstance(train, str | Path):
        return script_at(train)
    # Other programs, a training's for example, start processes of their own.
    return train if isinstance(train, Program) and train.kind == "script" else None
