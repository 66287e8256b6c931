"""``raysm.Grid``: many jobs of one request, a job for each row, over regions.

What flows in is a workload with ``{column}`` in its texts, rows, and where they may run; what flows out is a plan, and
a grid that goes on wherever it was stopped.
"""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from raysm.client.options import SubmitOptions
from raysm.client.service import Service, connect
from raysm.client.source.package import Package, Wrapped, package_of
from raysm.grid.batch_job.definition import ControllerJob
from raysm.grid.batch_job.sending import send
from raysm.grid.filling import Template
from raysm.grid.grid_request import GridRequest
from raysm.grid.planning import planned
from raysm.grid.rows.source import MAX_ROWS, source_of
from raysm.grid.rules import Rules
from raysm.grid.running import open_running
from raysm.grid.snapshot import snapshot
from raysm.request import Cluster, Script, Target, Workload
from raysm.request.cluster import LOCAL_TYPE
from raysm.request.options import check_names
from raysm.request.workload import require_workload
from raysm.views.grid.handle import GridHandle
from raysm.views.grid.shown import ShownPlan, ShownSnapshot, shown_plan, shown_snapshot

__all__ = ["Grid", "GridOptions"]

DRAWN_S = 0.5
"""Seconds between two looks that a caller is given: to count 100,000 rows takes a tenth of one."""


class GridOptions(SubmitOptions, total=False):
    """What a grid has beside its workload and rows; and, of ``SubmitOptions``, what its jobs have.

    ``name`` is the grid's, under which it is found again; None is made from the workload.

    Attributes:
        on: ``AWS(…)`` or ``Local(…)``; None is ``Local()``.
        regions: Where rows may run, the best first; none is where their data lie, and else the target's own region.
        instance_type: One, or several of which any will do, the best first; none is the one of ``cluster``.
        count: Instances of each job, where its row does not say; None is as many as ``cluster`` has, and else one.
        spot: Whether jobs run on spare capacity.
        rules: Jobs at a time, retries, budget and so on, as ``Rules`` says.
        max_rows: More are refused, since each is a job.
        shared: Whether its store is kept in the target's bucket too, so that any machine can look at it and go on with
            it; None is where its jobs are billed.
    """

    on: Target | Service | None
    regions: Sequence[str]
    instance_type: str | Sequence[str]
    count: int | None
    spot: bool
    rules: Rules
    max_rows: int
    shared: bool | None


class Grid(GridHandle):
    """Many jobs of one request over regions: a row of a file, a list or a query is a job.

    In the texts of the workload, its inputs, its image and its environment, ``{column}`` is what the row has there;
    ``{key}``, ``{region}``, ``{instance_type}``, ``{count}`` and ``{account}`` need no column. A column that
    no text takes becomes a hyperparameter. The columns ``key``, ``region``, ``instance_type``, ``count``, ``spot``,
    ``image``, ``priority``, ``expected_s``, ``max_runtime_s`` and ``input_NAME`` say of the row what their names say.

    Attributes:
        request: What is asked for, as one value.
    """

    def __init__(self, workload: Workload | Wrapped | str | Path, *, rows: Any, **options: Unpack[GridOptions]) -> None:
        """Check what can be checked here; no row is read, and nothing is sent.

        Args:
            workload: What every row runs, as ``raysm.submit`` takes it; a path is a ``raysm.Script`` without arguments.
                What has to be pickled, ``raysm.Batch(…)`` for one, is pickled here, once for all rows.
            rows: A path of ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``, a ``raysm.Query``, a data frame, or a list
                of dictionaries.
            options: As ``GridOptions`` says.

        Raises:
            InvalidRequest: What was asked for cannot be.
        """
        check_names("Grid", {**SubmitOptions.__annotations__, **GridOptions.__annotations__}, options)
        chosen: dict[str, Any] = dict(options)
        kind, package, title = _asked(workload)
        cluster = chosen.get("cluster") or Cluster()
        service = connect(chosen.pop("on", None))
        target = service.target
        self.request = GridRequest(
            name=chosen.pop("name", None) or title,
            source=source_of(rows),
            regions=tuple(chosen.pop("regions", ())),
            instance_types=_types(chosen.pop("instance_type", ()), cluster, target),
            count=chosen.pop("count", None) or cluster.count,
            markets=(chosen.pop("spot", False),),
            rules=_rules(chosen.pop("rules", None) or Rules(), cluster),
            max_rows=chosen.pop("max_rows", MAX_ROWS),
            shared=chosen.pop("shared", None),
            template=Template(workload=kind, target=target, options=chosen, package=package),
        )
        super().__init__(self.request.name, service=service)
        self._reached = service

    def plan(self) -> ShownPlan:
        """Return what it would do: places, dollars, hours, and what is impossible and why. Nothing is sent.

        Raises:
            InvalidRequest: A row cannot be, nothing says where the rows may run, or they cost more than the budget.
        """
        return shown_plan(planned(self.request, self._reached.at).plan)

    def submit(self, job: ControllerJob, *, go_on: bool = False) -> str | None:
        """Have a job of AWS Batch run the grid in the place of this process; return the job's id at once.

        The grid's rows are read here, and kept in the target's bucket; the job takes them up there, and is started
        again where its host is lost. How the grid stands is asked of this handle as before.

        Args:
            job: Its queue, and its definition or image.
            go_on: Although the grid's first rows have all failed for one reason.

        Returns:
            The id, as Batch knows it; None where nothing of the grid is left to do.

        Raises:
            InvalidRequest: Something cannot be, or no Batch job reaches it; nothing was made.
            LeaseLost: Another process runs this grid.
            ServiceError: Batch or S3 refuses, or cannot be reached.
        """
        controller = send(planned(self.request, self._reached.at), job, self._reached.at, goes_on=go_on)
        return None if controller is None else controller.id

    def run(self, *, go_on: bool = False, seen: Callable[[ShownSnapshot], Any] | None = None) -> ShownSnapshot:
        """Send a job for each row, until all are done; return how it stands then.

        The same call again goes on where it was stopped: rows that are done stay done, jobs that run are found again,
        and rows that are new join. An interrupt (Ctrl-C) leaves the jobs as they are.

        Args:
            go_on: Although its first rows have all failed for one reason.
            seen: Called with how it stands, twice a second at most.

        Raises:
            InvalidRequest: What was asked for cannot be; nothing was sent. Or there is a grid of this name with another
                script, arguments or options.
            LeaseLost: Another process runs this grid.
        """
        services = functools.lru_cache(self._reached.at)
        grid = planned(self.request, services)
        running = open_running(
            grid.request,
            grid.tasks,
            grid.facts,
            services,
            goes_on=go_on,
            planned_usd=grid.plan.usd,
        )
        drawn_s = 0.0

        def sleep(seconds: float) -> None:
            nonlocal drawn_s
            if seen is not None and time.monotonic() - drawn_s >= DRAWN_S:
                seen(shown_snapshot(snapshot(running.store, running.clock.now())))
                drawn_s = time.monotonic()
            running.clock.sleep(seconds)

        try:
            running.run(sleep)
            return shown_snapshot(snapshot(running.store, running.clock.now()))
        finally:
            running.close()


def _asked(workload: Workload | Wrapped | str | Path) -> tuple[Workload, Package | None, str]:
    """Return a workload with what was pickled of it, and the name of a grid that is given none."""
    if isinstance(workload, str | Path):
        workload = Script(str(workload))
    if isinstance(workload, Wrapped):
        package = package_of(workload)
        return package.workload, package, package.title
    # Of others nothing is read before a row is sent: who mends a script goes on with the same grid.
    return require_workload(workload), None, workload.title


def _types(named: str | Sequence[str], cluster: Cluster, target: Target) -> tuple[str, ...]:
    types = (named,) if isinstance(named, str) else tuple(named)
    if types:
        return types
    # On AWS the type of no instance is a default: rows may name theirs, and else the plan asks for one.
    return () if target.names_own_types and cluster.instance_type == LOCAL_TYPE else cluster.types


def _rules(rules: Rules, cluster: Cluster) -> Rules:
    # Who gives a job alternatives lets the service choose among them.
    return replace(rules, any_type=True) if cluster.alternatives else rules
