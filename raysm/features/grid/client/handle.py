"""The handle on an existing grid, by its name, and its rows as experiments.

The handle only needs the grid's file, or the copy in S3 of a grid that a Batch job runs. So it
works while another process runs the grid, which reads commands at its next step.
"""

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from raysm.core.client.job.description import Status
from raysm.core.client.job.experiment import Experiment, Summary
from raysm.core.client.service import Service, connect
from raysm.core.client.views.live_card import output_here
from raysm.core.protocol.store import put
from raysm.core.request import Target
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.errors import InvalidRequest
from raysm.features.grid.batch_job.state import Folder, leave_command, read_copy, recall, seal_of
from raysm.features.grid.grid_request import extend
from raysm.features.grid.local_grids import grid_names, opened, read_target
from raysm.features.grid.row import RETRYABLE_STATES, STATES_BY_URGENCY, RowState
from raysm.features.grid.row_results import KEY, row_result, row_tables, write_tables
from raysm.features.grid.row_view import GridRow, check_state, row_views
from raysm.features.grid.running import GridStop, stop_grid
from raysm.features.grid.snapshot import snapshot
from raysm.features.grid.sources.source import MAX_ROWS, source_of
from raysm.features.grid.store.database import naming_file
from raysm.features.grid.store.store import Store, path_of
from raysm.features.grid.template import Services
from raysm.features.grid.views.report import report_page
from raysm.features.grid.views.text import ShownSnapshot, shown_snapshot
from raysm.features.grid.views.watching import NO_NOTEBOOK, GridWatch

STATUS = {
    RowState.DONE: Status.COMPLETED,
    RowState.FAILED: Status.FAILED,
    RowState.IMPOSSIBLE: Status.FAILED,
    RowState.STOPPED: Status.STOPPED,
    RowState.PLACED: Status.IN_PROGRESS,
    # The row's last job failed, and the row is tried again.
    RowState.WAITING: Status.FAILED,
}
"""Status of the last job of a row, by the row's state."""


def experiments_of(store: Store) -> list[Experiment]:
    """Return the last job of each row that was sent, the latest first.

    Each comes with the row's parameters, place and costs.

    Only the store is read: describing a thousand jobs in four regions would take minutes.
    """
    grid = store.grid()
    workload = json.loads(grid.template).get("workload", {}).get("kind")
    rows = [
        _experiment(row, grid.name, workload, grid.rules.rate)
        for row in row_views(store)
        if row.sent_s is not None
    ]
    return sorted(rows, key=lambda row: -row.created_s)


def rows_of_grids(name: str | None = None, limit: int | None = None) -> list[Experiment]:
    """Return the latest rows, up to ``limit``, of the grid ``name`` or of all grids here."""
    found: list[Experiment] = []
    for grid in grid_names() if name is None else [name]:
        with opened(grid) as store:
            found += experiments_of(store)[:limit]
    return found


def _experiment(row: GridRow, grid: str, workload: str | None, rate: str | None) -> Experiment:
    metrics: Mapping[str, Summary] = {}
    if rate is not None and row.rate is not None:
        metrics = {rate: Summary(last=row.rate, lowest=row.rate, highest=row.rate, count=1)}
    return Experiment(
        name=row.job or "",
        # The store does not know the account; name and region find the job.
        arn="",
        kind="training",
        status=STATUS.get(row.state, Status.UNKNOWN),
        message=row.reason,
        project=grid,
        task=row.key,
        workload=workload,
        # A user's own column of the same name wins.
        parameters={"row": row.key, "region": row.region, "spot": row.spot, **row.parameters},
        metrics=metrics,
        instances=((row.instance_type or "", row.count or 1),),
        created_s=row.sent_s or 0.0,
        started_s=row.started_s,
        ended_s=row.ended_s,
        cost_usd=row.usd,
        is_billed=row.instance_type != LOCAL_TYPE,
    )


class GridHandle:
    """An existing grid.

    Attributes:
        name: The grid's name.
    """

    def __init__(self, name: str, service: Service | None = None) -> None:
        self.name = name
        self._service = service
        # One service per target, since each service creates its own clients.
        self._at: Services = functools.lru_cache(Service if service is None else service.at)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Store]:
        """Open the grid's file, or its copy in S3 while a Batch job runs the grid.

        While the job runs, the file is outdated.
        """
        path = path_of(self.name)
        with naming_file(path), opened(self.name) as store:
            kept = read_target(path)
            # Read again each time, since the controller writes a copy every few seconds.
            copy = None
            if kept is not None and kept.away is not None:
                folder = Folder(self._at(kept.target), kept.away)
                copy = read_copy(folder, seal_of(path, folder))
            try:
                yield copy or store
            finally:
                if copy is not None:
                    copy.database.close()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[tuple[Store, Folder | None]]:
        """Open the grid to change it.

        While a Batch job runs it, also yield the folder that takes commands.

        If the Batch job has ended, the grid is taken back.
        """
        path = path_of(self.name)
        kept = read_target(path)
        folder = None
        if kept is not None and kept.away is not None:
            service = self._at(kept.target)
            folder = Folder(service, kept.away)
            if kept.controller is None or not kept.controller.is_open(service):
                with naming_file(path), opened(self.name) as store:
                    recall(store, path, folder)
                folder = None
        with self._opened() as store:
            yield store, folder

    def status(self) -> ShownSnapshot:
        """Return its status: states by region, costs, blocked places, time left.

        ``print`` and notebooks show it as ``raysm grid status`` does.

        Raises:
            InvalidRequest: There is no grid of this name.
        """
        with self._opened() as store:
            return shown_snapshot(snapshot(store, store.grid().clock.now()))

    def watch(self) -> GridWatch:
        """Show a card with status and curves in a notebook, and update it until the grid is over.

        Other cells can run meanwhile; ``stop()`` of the returned value ends the card.

        Raises:
            InvalidRequest: There is no grid of this name, or this is not a notebook.
        """
        return GridWatch(self.name, self.status, output_here(NO_NOTEBOOK))

    def rows(self, state: str | None = None) -> list[GridRow]:
        """Return its rows in the order of their source, each with its last job.

        Args:
            state: Only rows that are ``waiting``, ``placed``, ``done``, ``failed``, ``stopped`` or
                ``impossible``; None is all.

        Raises:
            InvalidRequest: There is no grid of this name, or no such state.
        """
        check_state(state)
        with self._opened() as store:
            return list(row_views(store, state))

    def result(
        self, key: str, *, on: Target | Service | None = None, to: str | Path | None = None
    ) -> Any:
        """Return the result of a done row.

        Args:
            key: The row's key.
            on: The grid's target; None takes the stored one, else ``Local()``.
            to: A folder for its files; None leaves local files where they are, and downloads others
                to raysm's home.

        Returns:
            The value that ``Job.result`` returns for the row's last job.

        Raises:
            InvalidRequest: There is no such row, or it is not done; the message says why.
        """
        with self._opened() as store:
            return row_result(store, key, self._reaching(on), None if to is None else Path(to))

    def table(
        self, *, column: str = KEY, partial: bool = False, on: Target | Service | None = None
    ) -> Any:
        """Return the result tables of all rows, for example predictions, as one ``pyarrow.Table``.

        Args:
            column: Name of its first column, which has the row's key.
            partial: True leaves out rows that are not done.
            on: See ``result``.

        Raises:
            InvalidRequest: A row is not done, its result is no table, or its columns differ from
                those of earlier rows.
            MissingDependency: pyarrow is not installed.
        """
        with self._opened() as store:
            tables = list(row_tables(store, self._reaching(on), column=column, partial=partial))
        if not tables:
            raise InvalidRequest(f"the rows of {self.name} have left no records")
        # pyarrow is installed, since row_tables needs it.
        import pyarrow

        return pyarrow.concat_tables(tables)

    def write_table(
        self,
        path: str | Path,
        *,
        column: str = KEY,
        partial: bool = False,
        on: Target | Service | None = None,
    ) -> int:
        """Write the result tables of all rows to one Parquet file, part by part.

        Returns:
            The number of records.

        Args:
            path: The file, which is replaced if it exists.
            column: See ``table``.
            partial: See ``table``.
            on: See ``result``.

        Raises:
            InvalidRequest: See ``table``.
        """
        with self._opened() as store:
            return write_tables(
                row_tables(store, self._reaching(on), column=column, partial=partial), Path(path)
            )

    def _reaching(self, on: Target | Service | None) -> Service:
        if on is not None:
            return connect(on)
        if self._service is not None:
            return self._service
        kept = read_target(path_of(self.name))
        return connect(None if kept is None else kept.target)

    def stop(self) -> GridStop:
        """Stop the grid: no further job is sent, and open jobs are stopped.

        The controller (``run``) stops them at its next step. If no controller runs, this call stops
        them and returns when they have ended.

        Returns:
            ``stopped``, the names of the jobs that this call has stopped; ``open``, how many are
            still open; ``has_controller``, whether a controller runs the grid.

        Raises:
            InvalidRequest: There is no grid of this name.
        """
        with self._changing() as (store, folder):
            if folder is not None:
                leave_command(
                    folder, seal_of(path_of(self.name), folder), "stop", store.grid().clock.now()
                )
                return GridStop(open=store.attempts.open_count(), has_controller=True)
            return stop_grid(
                store,
                path_of(self.name),
                functools.lru_cache(lambda target: self._at(target).unrepeated()),
            )

    def retry(self) -> int:
        """Queue the rows again that failed, were stopped, or found no place; return their number.

        Raises:
            InvalidRequest: There is no grid of this name.
        """
        with self._changing() as (store, folder):
            if folder is not None:
                leave_command(
                    folder, seal_of(path_of(self.name), folder), "retry", store.grid().clock.now()
                )
                states = store.rows.states()
                return sum(states.get(state, 0) for state in RETRYABLE_STATES)
            return store.requeue(RETRYABLE_STATES, store.grid().clock.now())

    def extend(self, rows: Any = None, *, max_rows: int = MAX_ROWS) -> int:
        """Add new rows, and take over corrected values of rows that are not done.

        Returns:
            How many rows are new.

        Args:
            rows: The source, as ``raysm.Grid`` takes it; None reads the grid's own file or query
                again.
            max_rows: A source with more rows is refused.

        Raises:
            InvalidRequest: There is no grid of this name, its rows cannot be read again, or a Batch
                job runs it.
            ServiceError: The database cannot be reached.
        """
        with self._changing() as (store, folder):
            if folder is not None:
                raise InvalidRequest(
                    f"a Batch job runs {self.name} and takes no new rows: "
                    "extend it when the job has ended"
                )
            return extend(store, None if rows is None else source_of(rows), max_rows=max_rows)

    def report(self, path: str | Path | None = None) -> Path:
        """Write its status as one HTML file that needs no network; return its path.

        Args:
            path: The file; None means ``NAME.html`` in the current folder.

        Raises:
            InvalidRequest: There is no grid of this name.
        """
        path = Path(path if path is not None else f"{self.name}.html")
        with self._opened() as store:
            # Rows that need the user come first, since the page shows only the first rows.
            rows = chain.from_iterable(row_views(store, state) for state in STATES_BY_URGENCY)
            put(path, report_page(snapshot(store, store.grid().clock.now()), rows))
        return path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def attach_grid(name: str) -> GridHandle:
    """Return the handle on an existing grid of this machine, even if a Batch job runs it.

    Args:
        name: The grid's name.

    Raises:
        InvalidRequest: There is no grid of this name; the message lists the existing ones.
    """
    with opened(name):
        return GridHandle(name)
