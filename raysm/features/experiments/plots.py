"""The charts of a job's metrics."""

from fnmatch import fnmatchcase

from raysm.core.client.job.experiment import MAX_POINTS, curves_of, thinned
from raysm.core.client.job.handle import Job
from raysm.core.client.views.charts import Chart, Plot, check_plotting, time_charts
from raysm.errors import InvalidRequest

MAX_ROWS = 4_500
"""Below the 5,000 rows of data that Altair accepts."""


def plot_job(job: Job, *names: str, log: bool = False, size: tuple[int, int] = (640, 200)) -> Plot:
    check_plotting()
    curves = curves_of(job.metrics())
    chosen = {
        name: curve
        for name, curve in curves.items()
        if not names or any(fnmatchcase(name, p) for p in names)
    }
    if curves and not chosen:
        raise InvalidRequest(
            f"no metric is named {' or '.join(names)}; there are {', '.join(sorted(curves))}"
        )
    max_points = max(20, min(MAX_POINTS, MAX_ROWS // max(1, len(chosen))))
    charts = [
        Chart(title=name, curves={name: thinned(curve, max_points)})
        for name, curve in chosen.items()
    ]
    first_s = min((curve[0][1] for curve in chosen.values()), default=0.0)
    started = job.describe().started
    # The clocks of the service and of the instances differ.
    start_s = first_s if started is None else min(first_s, started.timestamp())
    width, height = size
    return Plot(
        time_charts(charts, start_s, width=width, height=height, log=log).properties(title=job.name)
    )
