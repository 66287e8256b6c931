"""``raysm.Grid``: one request, run as a job for each row, over regions."""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from raysm.core.client.options import SubmitOptions
from raysm.core.client.service import Service, connect
from raysm.core.client.source.package import Package, Wrapped, package_of
from raysm.core.request import Cluster, Target, Workload
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.core.request.options import check_list, check_names
from raysm.core.request.programs import script_at
from raysm.core.request.workload import require_workload
from raysm.features.grid.batch_job.controller_job import ControllerJob, send
from raysm.features.grid.client.handle import GridHandle
from raysm.features.grid.grid_request import GridRequest
from raysm.features.grid.plan import make_plan
from raysm.features.grid.rules import Rules
from raysm.features.grid.running import open_running
from raysm.features.grid.snapshot import snapshot
from raysm.features.grid.sources.source import MAX_ROWS, source_of
from raysm.features.grid.template import Template
from raysm.features.grid.views.text import ShownPlan, ShownSnapshot, shown_plan, shown_snapshot

DRAWN_S = 0.5
"""Seconds between two calls of ``seen``, since counting 100,000 rows takes a tenth of a second."""


class GridOptions(SubmitOptions, total=False):
    """Options of a grid, and of its jobs (from ``SubmitOptions``).

    ``name`` is the grid's name, by which it is found again; None takes the workload's.

    Attributes:
        on: ``AWS(…)`` or ``Local(…)``; None means ``Local()``.
        regions: Regions where rows may run, the best first; by default those of their data, else
            the target's own.
        instance_type: One type, or several, the best first; by default that of ``cluster``.
        count: Instances of each job, unless its row says otherwise; None takes the count of
            ``cluster``, else one.
        spot: Whether jobs use spot capacity.
        rules: Jobs at a time, retries, budget and so on.
        max_rows: A source with more rows is refused, since each is a job.
    """

    on: Target | Service | None
    regions: Sequence[str]
    instance_type: str | Sequence[str]
    count: int | None
    spot: bool
    rules: Rules
    max_rows: int


class Grid(GridHandle):
    """One request, run as a job for each row of a file, a list or a query.

    ``{column}`` in the texts of the workload, its inputs, its image and its environment is replaced
    by the row's value; ``{key}``, ``{region}``, ``{instance_type}``, ``{count}`` and ``{account}``
    need no column. A column that no text uses becomes a hyperparameter. The columns ``key``,
    ``region``, ``instance_type``, ``count``, ``spot``, ``image``, ``priority``, ``expected_s``,
    ``max_runtime_s`` and ``input_NAME`` set these options of the row's job.

    Attributes:
        request: The whole request.
    """

    def __init__(
        self,
        workload: Workload | Wrapped | str | Path,
        *,
        rows: Any,
        **options: Unpack[GridOptions],
    ) -> None:
        """Check the request; no row is read, and nothing is sent.

        Args:
            workload: The workload of every row, as ``raysm.submit`` takes it; a path is a
                ``raysm.Script`` without arguments. Functions, as in ``raysm.Batch(…)``, are pickled
                here, once for all rows.
            rows: A path of ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``, a ``raysm.Query``, a
                data frame, or a list of dictionaries.
            options: See ``GridOptions``.

        Raises:
            InvalidRequest: An option is invalid.
        """
        check_names(
            "Grid", {**SubmitOptions.__annotations__, **GridOptions.__annotations__}, options
        )
        chosen: dict[str, Any] = dict(options)
        kind, package, title = _unwrapped(workload)
        cluster = chosen.get("cluster") or Cluster()
        service = connect(chosen.pop("on", None))
        target = service.target
        self.request = GridRequest(
            name=chosen.pop("name", None) or title,
            source=source_of(rows),
            regions=check_list("Grid", "regions", chosen.pop("regions", ())),
            instance_types=_types(chosen.pop("instance_type", ()), cluster, target),
            count=chosen.pop("count", None) or cluster.count,
            markets=(chosen.pop("spot", False),),
            rules=_rules(chosen.pop("rules", None) or Rules(), cluster),
            max_rows=chosen.pop("max_rows", MAX_ROWS),
            template=Template(workload=kind, target=target, options=chosen, package=package),
        )
        super().__init__(self.request.name, service)
        self._reached = service

    def plan(self) -> ShownPlan:
        """Return the plan: places, costs, durations, and why rows are impossible. Nothing is sent.

        Raises:
            InvalidRequest: A row is invalid, there is no region, or the rows cost more than the
                budget.
        """
        return shown_plan(make_plan(self.request, self._reached.at).plan)

    def submit(self, job: ControllerJob, *, go_on: bool = False) -> str | None:
        """Submit a job of AWS Batch that runs the grid instead of this process; return at once.

        The rows are read here and stored in the target's bucket, where the job finds them. Batch
        starts the job again if its host is lost. This handle shows the grid as before.

        Args:
            job: The job's queue, and its definition or image.
            go_on: True continues a grid that paused because its first rows all failed for one
                reason.

        Returns:
            Batch's ID of the job; None if nothing is left to do.

        Raises:
            InvalidRequest: An option is invalid, or a Batch job cannot reach an input; nothing was
                submitted.
            LeaseLost: Another process runs this grid.
            ServiceError: Batch or S3 refuses, or cannot be reached.
        """
        controller = send(
            make_plan(self.request, self._reached.at), job, self._reached.at, goes_on=go_on
        )
        return None if controller is None else controller.id

    def run(
        self, *, go_on: bool = False, seen: Callable[[ShownSnapshot], Any] | None = None
    ) -> ShownSnapshot:
        """Run a job for each row until all are done; return the status.

        The same call continues the grid: done rows stay done, running jobs are found again, and new
        rows are added. Ctrl-C leaves the jobs running.

        Args:
            go_on: True continues a grid that paused because its first rows all failed for one
                reason.
            seen: Called with the status, at most twice a second.

        Raises:
            InvalidRequest: The request is invalid and nothing was sent, or the grid of this name
                has another script, arguments or options.
            LeaseLost: Another process runs this grid.
        """
        services = functools.lru_cache(self._reached.at)
        grid = make_plan(self.request, services)
        running = open_running(grid, services, goes_on=go_on)
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


def _unwrapped(workload: Workload | Wrapped | str | Path) -> tuple[Workload, Package | None, str]:
    if isinstance(workload, str | Path):
        workload = script_at(workload)
    if isinstance(workload, Wrapped):
        package = package_of(workload)
        return package.workload, package, package.title
    # Scripts are read when a row is sent, so that a corrected script continues the same grid.
    return require_workload(workload), None, workload.title


def _types(named: str | Sequence[str], cluster: Cluster, target: Target) -> tuple[str, ...]:
    types = (named,) if isinstance(named, str) else tuple(named)
    if types:
        return types
    # AWS has no default type: rows may name their own, or else the plan asks for one.
    return () if target.names_own_types and cluster.instance_type == LOCAL_TYPE else cluster.types


def _rules(rules: Rules, cluster: Cluster) -> Rules:
    # With alternatives in the cluster, the service chooses among types.
    return replace(rules, any_type=True) if cluster.alternatives else rules
