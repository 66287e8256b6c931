"""Curves of metrics, of one job or of several beside each other: values flow in, an SVG flows out.

Needs no package: ``job.metrics().to_frame(wide=True).plot()`` is there for who wants more of a chart.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from raysm.client.experiments.curves import Curve, curves_of
from raysm.client.job import Job
from raysm.contract.store import put
from raysm.errors import InvalidRequest
from raysm.views.charts.line_chart import Axes, line_chart
from raysm.views.charts.series import Series

__all__ = ["Plot", "plot_curves", "plot_jobs"]


class Plot:
    """A chart, which a notebook shows, and which can be saved.

    Attributes:
        svg: One ``<svg>`` element.
    """

    def __init__(self, svg: str) -> None:
        """Keep ``svg``."""
        self.svg = svg

    def _repr_html_(self) -> str:
        # Inline, it has the page's color of text; as image/svg+xml it would be black on a dark page, too.
        return self.svg

    def _repr_svg_(self) -> str:
        return self._alone()

    def save(self, path: str | Path) -> Path:
        """Write it as a file, dark on white, and return its path."""
        put(Path(path), self._alone())
        return Path(path)

    def _alone(self) -> str:
        """Return it as a picture of its own, which has no page around it to take a color from."""
        # The chart draws in currentColor, which outside of a page is black on nothing.
        return self.svg.replace('style="max-width', 'style="color:#222;background:#fff;max-width', 1)

    def __repr__(self) -> str:
        return f"<raysm plot, {len(self.svg):,} characters of SVG: a notebook shows it, save('loss.svg') writes it>"


def plot_jobs(jobs: Sequence[Job], *names: str, log: bool = False, size: tuple[int, int] = (640, 260)) -> Plot:
    """Return the curves of metrics of some jobs.

    Args:
        jobs: One or several.
        names: Metrics, ``"loss"``, or patterns, ``"val/*"``; none is all of the jobs' own.
        log: Whether the y axis is logarithmic.
        size: Width and height in pixels.

    Raises:
        InvalidRequest: No job has a metric of such a name, and some have others.
    """
    curves = {job.name: curves_of(job.metrics()) for job in jobs}
    return plot_curves(curves, names, log=log, size=size)


def plot_curves(
    curves: Mapping[str, Mapping[str, Curve]],
    names: Sequence[str],
    *,
    log: bool = False,
    size: tuple[int, int] = (640, 260),
) -> Plot:
    """Return the curves of metrics by the jobs that they are of; arguments and errors as of ``plot_jobs``.

    A curve goes by its steps; where one of the chosen has none, all of them by the time since the first value of each.
    """
    chosen = [
        (job, name, curve)
        for job, of_job in curves.items()
        for name, curve in of_job.items()
        if curve and (not names or any(fnmatchcase(name, pattern) for pattern in names))
    ]
    # Of all jobs: a job without any metric yet is no reason to refuse a name that another one has.
    all_names = sorted({name for of_job in curves.values() for name in of_job})
    if not chosen and all_names:
        raise InvalidRequest(f"no metric is named {' or '.join(names)}; there are {', '.join(all_names)}")
    # One axis for all curves: steps and seconds in one chart would lie.
    by_time = any(step is None for _, _, curve in chosen for step, _, _ in curve)
    labels = _labels([(job, name) for job, name, _ in chosen])
    series = [
        Series(name=label, points=_points(curve, by_time)) for label, (_, _, curve) in zip(labels, chosen, strict=True)
    ]
    metrics = list(dict.fromkeys(name for _, name, _ in chosen))
    axes = Axes(
        title=next(iter(curves)) if len(curves) == 1 else "",
        x="time" if by_time else "step",
        y=metrics[0] if len(metrics) == 1 else "",
        width=size[0],
        height=size[1],
        is_time=by_time,
        is_log=log,
    )
    return Plot(line_chart(series, axes))


def _labels(chosen: Sequence[tuple[str, str]]) -> list[str]:
    """Return what tells the curves apart: the metric, the job, or both."""
    jobs, names = {job for job, _ in chosen}, {name for _, name in chosen}
    if len(jobs) <= 1:
        return [name for _, name in chosen]
    return [job if len(names) == 1 else f"{name} {job}" for job, name in chosen]


def _points(curve: Curve, by_time: bool) -> list[tuple[float, float]]:
    if by_time:
        # Since the first value: jobs that ran on different days lie above each other.
        return [(time_s - curve[0][1], value) for _, time_s, value in curve]
    # A job that went on from a checkpoint told some steps twice.
    return sorted((float(step or 0), value) for step, _, value in curve)
