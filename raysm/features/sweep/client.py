"""``raysm.Sweep``, a sweep of a function or a script, and its result.

The result has the best trial and the table of all.
"""

import difflib
import functools
import html
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysm.core import features
from raysm.core.client.job.handle import Job
from raysm.core.client.logs.rendering import marked_value
from raysm.core.client.results.result import Result
from raysm.core.client.source.function import name_of, pickled_call
from raysm.core.client.source.package import late_source
from raysm.core.client.units import PYTHON_VERSION
from raysm.core.protocol.events import BEST, Trial, Trials, where_diverged
from raysm.core.protocol.source import Source, source_of
from raysm.core.protocol.terminal_text import visible
from raysm.core.request.programs import Program
from raysm.errors import InvalidRequest, MissingDependency, used_by
from raysm.features.sweep.request import (
    Earlier,
    FunctionSweep,
    Rule,
    ScriptSweep,
    Search,
    SweepWorkload,
    swept_script,
)
from raysm.features.sweep.space import Parameter, parse_space

MAX_SHOWN = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    """The trial with the best value."""

    number: int
    params: dict[str, Any]
    metrics: dict[str, float]
    """Its last reports, by name."""
    value: float
    """The metric of the sweep."""
    checkpoint: Path | None
    """Folder with its last checkpoint, or what it wrote into $SM_MODEL_DIR; None if it left
    nothing."""


class TrialTable(list[Trial]):
    """A list of trials that shows itself as a table."""

    def __init__(self, trials: Sequence[Trial], metric: str, mode: str) -> None:
        super().__init__(trials)
        self._metric = metric
        self._mode = mode

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat row for each trial.

        A row has number, status, value, parameters, metrics, reports and seconds.
        """
        return [_row(trial) for trial in self]

    def by_value(self) -> "TrialTable":
        sign = 1 if self._mode == "min" else -1

        def key(trial: Trial) -> tuple[bool, float, int]:
            # The number last, so that equal values stand in the same order each time.
            return (trial.value is None, sign * (trial.value or 0.0), trial.number)

        return TrialTable(sorted(self, key=key), self._metric, self._mode)

    @property
    def failed(self) -> list[Trial]:
        return [trial for trial in self if trial.status == "failed"]

    def best_so_far(self) -> list[float]:
        """Return the best value after each trial, in the order in which they ended."""
        best: list[float] = []
        choose = min if self._mode == "min" else max
        for trial in sorted(self, key=lambda trial: trial.time_s):
            # A failed trial may have reported a value before it failed.
            if trial.value is not None and trial.status != "failed":
                best.append(choose([trial.value, *best[-1:]]))
        return best

    def to_frame(self) -> Any:
        with used_by("to_frame"):
            # Imported on first use, because most uses of a table do not need it.
            import pandas
        # Without rows there is no column "number" to be the index.
        return pandas.DataFrame(self.rows()).set_index("number") if self else pandas.DataFrame()

    def __repr__(self) -> str:
        names, cells = self._cells()
        widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
            for row in (names, *cells)
        ]
        return visible("\n".join([line.rstrip() for line in lines] + self._hidden()))

    def _repr_html_(self) -> str:
        names, cells = self._cells()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>"
            for row in cells
        )
        hidden = "".join(f"<p>{html.escape(text)}</p>" for text in self._hidden())
        return (
            "<table "
            f"cellpadding=5><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{hidden}"
        )

    def _hidden(self) -> list[str]:
        return [f"… and {len(self) - MAX_SHOWN} more"] if len(self) > MAX_SHOWN else []

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        params = list(dict.fromkeys(name for trial in self for name in trial.params))
        # Only the metric of the sweep: to_frame() has all others.
        names = ["trial", "status", self._metric, *params, "reports", "seconds"]
        return names, [
            [
                str(trial.number),
                trial.status,
                self._value_text(trial),
                *(_text(trial.params.get(name, "")) for name in params),
                str(trial.reports),
                f"{trial.seconds:.1f}",
            ]
            for trial in self.by_value()[:MAX_SHOWN]
        ]

    def _value_text(self, trial: Trial) -> str:
        # The last report of a trial that diverged is in its metrics.
        value = trial.metrics.get(self._metric) if trial.value is None else trial.value
        return "" if value is None else marked_value(value, where_diverged(trial))


@dataclass(frozen=True)
class SweepResult(Result):
    """The result of a sweep.

    Attributes:
        path: The folder.
        manifest: How it was computed.
    """

    @functools.cached_property
    def _found(self) -> Trials:
        return Trials.read(self.path)

    @property
    def metric(self) -> str:
        """Name of the metric that the sweep optimizes."""
        return self._found.metric

    @property
    def trials(self) -> TrialTable:
        """All trials, by their numbers."""
        return TrialTable(self._found.trials, self._found.metric, self._found.mode)

    @property
    def best(self) -> Best:
        """The trial with the best value.

        Raises:
            InvalidRequest: None has a value.
        """
        trial = next((one for one in self._found.trials if one.number == self._found.best), None)
        if trial is None or trial.value is None:
            raise InvalidRequest(f"no trial of {self.manifest.job} has a value of {self.metric!r}")
        folder = self.path / BEST
        params = dict(trial.params)
        metrics = dict(trial.metrics)
        checkpoint = folder if folder.is_dir() else None
        return Best(
            number=trial.number,
            params=params,
            metrics=metrics,
            value=trial.value,
            checkpoint=checkpoint,
        )

    def table(self, name: str | None = None) -> Any:
        """Return all trials as a table, or, by its name, a file of the result.

        The table is a list of the trials, with ``to_frame()``.
        """
        return self.trials if name is None else Result.table(self, name)

    @property
    def is_partial(self) -> bool:
        """Whether trials have failed."""
        return bool(self.trials.failed)

    @property
    def view(self) -> str:
        """The best trials as a table."""
        return repr(self.trials)

    def plot(self, *, size: tuple[int, int] = (640, 460)) -> Any:
        """Return a picture of the trials, which a notebook shows.

        The picture has parallel coordinates, and the best value so far. ``.save("sweep.png")``
        writes it, ``.chart`` is Altair's.

        Args:
            size: Width and height in pixels.
        """
        # Views are above the client, which does not import them.
        return features.view("plot_sweep")(self, size=size)

    def __repr__(self) -> str:
        return visible(
            f"<raysm sweep {self.manifest.job}: {self.manifest.summary}\n{self.trials!r}>"
        )

    def _repr_html_(self) -> str:
        return f"<div><b>{html.escape(self.manifest.summary)}</b>{self.trials._repr_html_()}</div>"


def _row(trial: Trial) -> dict[str, Any]:
    # A metric with the name of a parameter gets a prefix, so that neither replaces the other.
    metrics = {
        (f"metrics.{name}" if name in trial.params else name): value
        for name, value in trial.metrics.items()
    }
    columns = {"number": trial.number, "status": trial.status, "value": trial.value}
    rest = {
        "reports": trial.reports,
        "seconds": trial.seconds,
        "host": trial.host,
        "reason": trial.reason,
    }
    return {**dict(trial.params), **metrics, **columns, **rest}


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


Space = Mapping[str, Parameter | str] | Callable[[Any], Any]


class Sweep:
    """A workload: many trials of a function or a script with different parameters.

    A function gets its trial's parameters as arguments, or all of them as one mapping if it has one
    parameter. It returns the metric, or a mapping of several. While it runs, it may report metrics
    (``raysm.report``), so that poor trials end early. A script gets the parameters as ``--lr=0.01``
    before its other arguments, and reports.

    Attributes:
        train: The function, or the ``raysm.Script``.
        space: The ranges.
    """

    def __init__(
        self,
        train: Callable[..., Any] | Program | str | Path,
        *,
        space: Space,
        metric: str,
        mode: typing.Literal["min", "max"],
        trials: int = 20,
        search: Search | None = None,
        stop: Rule | str | None = None,
        workers: int = 1,
        cpus: float = 1.0,
        gpus: float | None = None,
        concurrency: int | None = None,
        time_budget_s: float | None = None,
        retries: int = 3,
        reuse: bool = True,
        seed: int | None = None,
        warm_start: "Job | SweepResult | None" = None,
    ) -> None:
        """Describe the sweep and check it.

        Args:
            train: The function, the path of a script, or a ``raysm.Script`` with arguments of its
                own.
            space: A range for each parameter, by its name; or a function of an Optuna trial that
                draws them (``trial.suggest_float("lr", 1e-4, 1e-1, log=True)``), and returns them
                or nothing.
            metric: Name of the metric to optimize.
            mode: The direction: ``min`` keeps the lowest value of the metric, ``max`` the highest.
            trials: Number of trials.
            search: ``optuna``, ``random`` or ``grid``; None is ``optuna``, or ``random`` with
                ``stop="pbt"``.
            stop: Ends trials early: ``asha``, ``median``, ``pbt``, or a class with numbers,
                ``raysm.Asha(grace=5)``.
            workers: Processes of one trial; several have a process group of torch.
            cpus: CPUs of each worker.
            gpus: GPUs of each worker; None is one if any instance has GPUs, else 0.
            concurrency: Maximum number of trials at a time; None is as many as the instances have
                room for.
            time_budget_s: Seconds after which all trials end.
            retries: Maximum number of restarts of a trial whose process or instance died.
            reuse: Run several trials in one process, one after the other.
            seed: Seed of the search and of each trial's random numbers.
            warm_start: A sweep of the same parameters, or its result: the search starts with its
                trials that lie in the ranges.

        Raises:
            InvalidRequest: A range or an option is not allowed, or the function does not take the
                parameters.
        """
        self.train = train
        self.space = space
        ranges = {} if callable(space) else parse_space(space)
        fields: dict[str, Any] = {
            "metric": metric,
            "mode": mode,
            "warm_start": _earlier(warm_start, metric, ranges),
            "trials": trials,
            "search": search,
            "stop": stop,
            "workers": workers,
            "cpus": cpus,
            "gpus": gpus,
            "concurrency": concurrency,
            "time_budget_s": time_budget_s,
            "retries": retries,
            "reuse": reuse,
            "seed": seed,
            **({"space": ranges} if ranges else {}),
        }
        # At once, so that an error points to this line and not to the submission.
        self._workload = _workload(train, space, fields)

    def workload(self) -> SweepWorkload:
        return self._workload

    def pickled(self) -> bytes | None:
        """Return the pickled function, with the space if that is a function too; None for a script.

        Raises:
            InvalidRequest: Something cannot be pickled.
        """
        if self._workload.pickled_by is None:
            return None
        function: Any = self.train
        # In one pickle, so that both functions share their objects in the job too.
        return pickled_call(
            function, (self.space,) if callable(self.space) else (), {}, source=self.source()
        )

    def source(self) -> Source | None:
        """Return the user's files for the payload.

        The files are the script's, or modules that the function imports late.
        """
        script = self._workload.entry_script
        if script is None:
            return late_source(self.train)  # type: ignore[arg-type]
        return source_of(script)

    def title(self) -> str:
        """Return the name of the function or script, the default name of the job."""
        # A functools.partial has no name of its own.
        return (
            getattr(self.train, "__name__", None)
            or Path(self._workload.title).stem.rpartition(".")[2]
        )

    def __repr__(self) -> str:
        return (
            f"Sweep({self._workload.title}, {self._workload.planned_trials} trials by "
            f"{self._workload.metric!r})"
        )


def _workload(train: object, space: Space, fields: dict[str, Any]) -> SweepWorkload:
    script = swept_script(train)
    if script is not None:
        if callable(space):
            raise InvalidRequest(
                "Sweep: a script's space is ranges by name, {'lr': raysm.loguniform(1e-4, 1e-1)}; "
                "a space that is a function needs a function instead of a script"
            )
        return ScriptSweep(
            script=script.script,
            args=script.args,
            source_dir=script.source_dir,
            command=script.command,
            **fields,
        )
    if not callable(train):
        raise InvalidRequest(
            f"Sweep: the first argument is a function, or the path of a script, got {train!r}"
        )
    # A function may draw other names in each trial.
    names = None if callable(space) else list(fields["space"])
    takes_config = _takes_config(train, names)
    workload = FunctionSweep(
        name=name_of(train),
        python=PYTHON_VERSION,
        takes_config=takes_config,
        draws=callable(space),
        **fields,
    )
    if workload.workers > 1 and features.path_of("kinds", "torch_script") is None:
        raise MissingDependency(
            f"Sweep: workers={workload.workers} needs the feature of trainings, whose process "
            "groups trials use; this raysm lacks it: install all of raysm again"
        )
    return workload


def _takes_config(train: Callable[..., Any], names: Sequence[str] | None) -> bool:
    """Return True if a function takes the parameters as one mapping.

    ``names`` is None if a function draws them.
    """
    try:
        signature = inspect.signature(train)
    except ValueError:  # a built-in without a signature: the call itself raises
        return False
    # *args takes nothing that has a name.
    by_name = [
        item for item in signature.parameters.values() if item.kind is not item.VAR_POSITIONAL
    ]
    has_one = len(by_name) == 1 and by_name[0].kind is not inspect.Parameter.VAR_KEYWORD
    if names is None:
        return has_one
    try:
        signature.bind(**dict.fromkeys(names))
        return False
    except TypeError as error:
        if (
            has_one
            and by_name[0].name not in names
            and by_name[0].kind is not inspect.Parameter.KEYWORD_ONLY
        ):
            # f(lr_) for the space {"lr"} is a typo, f(config) is not: only typos are as close as
            # 0.8.
            if not difflib.get_close_matches(by_name[0].name, names, n=1, cutoff=0.8):
                return True
        takes = ", ".join(item.name for item in by_name) or "nothing"
        raise InvalidRequest(
            f"Sweep: {name_of(train)} does not take the space: {error}; it takes {takes}, not "
            f"{', '.join(names)}"
        ) from None


def _earlier(
    sweep: "Job | SweepResult | None", metric: str, ranges: Mapping[str, Parameter]
) -> tuple[Earlier, ...]:
    result: object = sweep.result() if isinstance(sweep, Job) else sweep
    if result is None:
        return ()
    if not isinstance(result, SweepResult):
        raise InvalidRequest(f"Sweep: warm_start is a sweep, or its result, got {sweep!r}")
    if result.metric != metric:
        raise InvalidRequest(
            f"Sweep: warm_start was a sweep by {result.metric!r}, and this one is by {metric!r}; "
            "take one by the same"
        )
    # Trials that ended early count: their value is an upper bound of what they could reach.
    having = [
        trial for trial in result.trials if trial.value is not None and trial.status != "failed"
    ]
    # Users often narrow a range around the best value. SweepWorkload refuses missing parameters.
    within = [
        trial
        for trial in having
        if all(
            item.contains(trial.params[name])
            for name, item in ranges.items()
            if name in trial.params
        )
    ]
    if not within:
        raise InvalidRequest(
            f"Sweep: none of the {len(having)} trials of warm_start that have a value lies within "
            "the space; widen it, or begin without warm_start"
        )
    return tuple(Earlier(params=trial.params, value=trial.value or 0.0) for trial in within)
