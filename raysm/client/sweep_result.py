"""The result of a sweep on this machine: the best trial and the table of all."""

import functools
import html
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysm.client.logs.rendering import metric_value
from raysm.client.results.result import Result
from raysm.contract.events import BEST, Trial, Trials
from raysm.errors import InvalidRequest, MissingDependency

BARS = "▁▂▃▄▅▆▇█"

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
    """Folder with its last checkpoint, or what it wrote into $SM_MODEL_DIR; None if it left nothing."""


class TrialTable(list[Trial]):
    """A list of trials that shows itself as a table."""

    def __init__(self, trials: Sequence[Trial], metric: str, mode: str) -> None:
        super().__init__(trials)
        self._metric, self._mode = metric, mode

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat row for each trial: number, status, value, parameters, metrics, reports, seconds."""
        return [_row(trial) for trial in self]

    def by_value(self) -> "TrialTable":
        """Return the trials sorted by value, the best first and those without a value last."""
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
        """Return a ``pandas.DataFrame`` of the rows, by the trials' numbers."""
        try:
            # Imported on first use, because most uses of a table do not need it.
            import pandas
        except ImportError as error:
            raise MissingDependency(f"to_frame needs {error.name}: python3 -m pip install pandas") from error
        # Without rows there is no column "number" to be the index.
        return pandas.DataFrame(self.rows()).set_index("number") if self else pandas.DataFrame()

    def __repr__(self) -> str:
        names, cells = self._cells()
        widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in (names, *cells)
        ]
        return "\n".join([line.rstrip() for line in lines] + self._hidden())

    def _repr_html_(self) -> str:
        names, cells = self._cells()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in cells)
        hidden = "".join(f"<p>{html.escape(text)}</p>" for text in self._hidden())
        return f"<table cellpadding=5><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{hidden}"

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
                "" if trial.value is None else metric_value(trial.value),
                *(_text(trial.params.get(name, "")) for name in params),
                str(trial.reports),
                f"{trial.seconds:.1f}",
            ]
            for trial in self.by_value()[:MAX_SHOWN]
        ]


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
        return Best(
            number=trial.number,
            params=dict(trial.params),
            metrics=dict(trial.metrics),
            value=trial.value,
            checkpoint=folder if folder.is_dir() else None,
        )

    def table(self, name: str | None = None) -> Any:
        """Return all trials as a table: a list of them, with ``to_frame()``; or, by its name, a file of the result."""
        return self.trials if name is None else Result.table(self, name)

    @property
    def view(self) -> str:
        """The best value so far after each trial as a sparkline, and the best trials as a table."""
        best = self.trials.best_so_far()
        parts = [f"best {self.metric} so far  {sparkline(best)}"] if len(best) > 1 else []
        return "\n".join([*parts, *([""] if parts else []), repr(self.trials)])

    def plot(self, *, size: tuple[int, int] = (640, 460)) -> Any:
        """Return a picture of the trials, which a notebook shows: parallel coordinates, and the best value so far.

        ``.save("sweep.png")`` writes it, ``.chart`` is Altair's.

        Args:
            size: Width and height in pixels.
        """
        # Views are above the client, which does not import them.
        return pkgutil.resolve_name("raysm.views.plots:plot_sweep")(self, size=size)

    def __repr__(self) -> str:
        return f"<raysm sweep {self.manifest.job}: {self.manifest.summary}\n{self.trials!r}>"

    def _repr_html_(self) -> str:
        return f"<div><b>{html.escape(self.manifest.summary)}</b>{self.trials._repr_html_()}</div>"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Return values as at most ``width`` bars; each shows the last value of its stretch."""
    count = min(width, len(values))
    chosen = [values[(number + 1) * len(values) // count - 1] for number in range(count)]
    low, high = min(chosen), max(chosen)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round(scale * (value - low))] for value in chosen)


def _row(trial: Trial) -> dict[str, Any]:
    # A metric with the name of a parameter gets a prefix, so that neither replaces the other.
    metrics = {(f"metrics.{name}" if name in trial.params else name): value for name, value in trial.metrics.items()}
    columns = {"number": trial.number, "status": trial.status, "value": trial.value}
    rest = {"reports": trial.reports, "seconds": trial.seconds, "host": trial.host, "reason": trial.reason}
    return {**dict(trial.params), **metrics, **columns, **rest}


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
