"""The handle on a grid that there is, by its name: what it is asked for flows in, what it says flows out.

Its file is all that it needs, so that it works in any process, also while another one runs the grid. What is wished of
the grid, that process finds at its next step. Of a grid that is shared its copy in S3 will do, on any machine.
"""

import contextlib
import functools
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from raysm.client.service import Service, connect
from raysm.contract.store import put
from raysm.errors import InvalidRequest
from raysm.grid.attempt import AGAIN, TaskState
from raysm.grid.database import naming_file
from raysm.grid.grid_request import extend
from raysm.grid.local_grids import handover_target, opened, read_target
from raysm.grid.row import KEY, TROUBLES_FIRST, GridRow, row_result, row_tables, rows_of, write_tables
from raysm.grid.rows.source import MAX_ROWS, source_of
from raysm.grid.shared.lease import Objects
from raysm.grid.shared.sharing import copied, leave_command, objects_of
from raysm.grid.snapshot import snapshot
from raysm.grid.stop_grid import GridStop, stop_grid
from raysm.grid.store import Store, path_of
from raysm.request import Target
from raysm.views.card.live_card import output_here
from raysm.views.grid.report import report_page
from raysm.views.grid.shown import ShownSnapshot, shown_snapshot
from raysm.views.grid.watching import NO_NOTEBOOK, GridWatch

__all__ = ["GridHandle", "attach_grid"]


class GridHandle:
    """A grid that there is.

    Attributes:
        name: Of the grid.
    """

    def __init__(self, name: str, objects: Objects | None = None, service: Service | None = None) -> None:
        """Keep the name; nothing is opened before something is asked.

        Args:
            name: Of the grid.
            objects: Where its copies lie, which other machines write; None is the file of this machine.
            service: Of the target to which its jobs are sent; None is not known.
        """
        self.name = name
        self._service = service
        self._objects = objects
        self._handed_over: tuple[Target, Objects] | None = None

    @property
    def _copies(self) -> Objects | None:
        """Where its copies lie, which another machine writes; None of a grid whose file is here.

        Of one that was handed over, the file here tells how it stood then, and no wish that is left in it is found.
        """
        if self._objects is not None:
            return self._objects
        target = handover_target(path_of(self.name))
        if target is None:
            return None
        # Once: a screen that is drawn again and again would make clients of its own each time.
        if self._handed_over is None or self._handed_over[0] != target:
            service = Service(target) if self._service is None else self._service.at(target)
            self._handed_over = target, objects_of(self.name, service)
        return self._handed_over[1]

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Store]:
        copies = self._copies
        if copies is None:
            with naming_file(path_of(self.name)), opened(self.name) as store:
                yield store
            return
        # Anew for each look: a copy is as old as the controller's last push, seconds.
        store = copied(copies, self.name)
        try:
            yield store
        finally:
            store.database.close()

    def status(self) -> ShownSnapshot:
        """Return how it stands: states by region, dollars, blocked places, time left.

        ``print`` shows it as ``raysm grid status`` does, and a notebook too.

        Raises:
            InvalidRequest: There is no grid of this name.
        """
        with self._opened() as store:
            return shown_snapshot(snapshot(store, store.grid().clock.now()))

    def watch(self) -> GridWatch:
        """Show a card of it below the cell of a notebook, and draw it again until the grid is over, with its curves.

        Later cells run meanwhile, ``run`` in a thread of the user's too; ``stop()`` of what is returned ends the card.

        Raises:
            InvalidRequest: There is no grid of this name, or this is no notebook.
        """
        return GridWatch(self.name, self.status, output_here(NO_NOTEBOOK))

    def rows(self, state: str | None = None) -> list[GridRow]:
        """Return its rows in the order of their source, each with the job that it has, or had last.

        Args:
            state: Those alone that are ``waiting``, ``placed``, ``done``, ``failed``, ``stopped``, ``impossible`` or
                ``skipped``; None is all.

        Raises:
            InvalidRequest: There is no grid of this name, or no such state.
        """
        if state is not None and state not in list(TaskState):
            raise InvalidRequest(f"a row's state is one of {', '.join(TaskState)}, got {state!r}")
        with self._opened() as store:
            return list(rows_of(store, state))

    def result(self, key: str, *, on: Target | Service | None = None, to: str | Path | None = None) -> Any:
        """Bring what a row has left that is done.

        Args:
            key: Of the row.
            on: The grid's target; None is the one that is known here, and else ``Local()``.
            to: A folder for its files; None is where they lie already, or a folder below raysm's home.

        Returns:
            What ``Job.result`` returns for the row's last job.

        Raises:
            InvalidRequest: There is no such row, or it is not done; the message says why.
        """
        with self._opened() as store:
            return row_result(store, key, self._reaching(on), None if to is None else Path(to))

    def table(self, *, column: str = KEY, partial: bool = False, on: Target | Service | None = None) -> Any:
        """Bring the tables that all rows have left together, as one ``pyarrow.Table``: predictions, neighbors.

        Args:
            column: Name of its first column, which has the row's key.
            partial: Whether rows that are not done are left out.
            on: As of ``result``.

        Raises:
            InvalidRequest: A row is not done, has left no table, or one with other columns than those before it.
            MissingDependency: pyarrow is not installed.
        """
        with self._opened() as store:
            tables = list(row_tables(store, self._reaching(on), column=column, partial=partial))
        if not tables:
            raise InvalidRequest(f"the rows of {self.name} have left no records")
        # Where it is missing, there is no first table either.
        import pyarrow

        return pyarrow.concat_tables(tables)

    def write_table(
        self, path: str | Path, *, column: str = KEY, partial: bool = False, on: Target | Service | None = None
    ) -> int:
        """Write what ``table`` returns as one Parquet file, a part at a time; return how many records it has.

        Args:
            path: Of the file; one that is there is replaced.
            column: As of ``table``.
            partial: The same.
            on: The same.

        Raises:
            InvalidRequest: As of ``table``.
        """
        with self._opened() as store:
            return write_tables(row_tables(store, self._reaching(on), column=column, partial=partial), Path(path))

    def _reaching(self, on: Target | Service | None) -> Service:
        if on is not None:
            return connect(on)
        if self._service is not None:
            return self._service
        kept = read_target(path_of(self.name))
        return connect(None if kept is None else kept.target)

    def stop(self) -> GridStop:
        """Stop it: no further job is sent, and the open ones are stopped.

        The controller (``run``) stops them at its next step. If none holds the grid's lease, this call stops them, and
        returns when they have ended.

        Returns:
            ``stopped``, the names of the jobs that this call has stopped; ``open``, how many are still open;
            ``has_controller``, whether a controller runs the grid.

        Raises:
            InvalidRequest: There is no grid of this name.
        """
        with self._opened() as store:
            if (copies := self._copies) is not None:
                leave_command(copies, "stop", store.grid().clock.now())
                return GridStop(open=store.open_count(), has_controller=True)
            services = Service if self._service is None else self._service.at
            return stop_grid(
                store, path_of(self.name), functools.lru_cache(lambda target: services(target).unrepeated())
            )

    def retry(self) -> int:
        """Have the rows wait again that failed, were stopped, or found no place; return how many they are.

        Raises:
            InvalidRequest: There is no grid of this name.
        """
        with self._opened() as store:
            if (copies := self._copies) is not None:
                leave_command(copies, "retry", store.grid().clock.now())
                states = store.states()
                return sum(states.get(state, 0) for state in AGAIN)
            return store.again(AGAIN, store.grid().clock.now())

    def extend(self, rows: Any = None, *, max_rows: int = MAX_ROWS) -> int:
        """Have new rows join it, and return how many they are; those that it has stay as they are.

        Args:
            rows: Where they come from, as ``raysm.Grid`` takes it; None reads the grid's own file, or runs its own
                query, once more: the daily campaigns.
            max_rows: More in the source are refused.

        Raises:
            InvalidRequest: There is no grid of this name, its rows cannot be read again, or it is seen from elsewhere.
            ServiceError: The database cannot be reached.
        """
        if self._copies is not None:
            raise InvalidRequest(
                f"another machine runs {self.name} and reads its rows: extend it there, or run it here"
            )
        with self._opened() as store:
            return extend(store, None if rows is None else source_of(rows), max_rows=max_rows)

    def report(self, path: str | Path | None = None) -> Path:
        """Write it as one HTML file that needs nothing else; return where.

        Args:
            path: None is ``NAME.html``, here.

        Raises:
            InvalidRequest: There is no grid of this name.
        """
        path = Path(path if path is not None else f"{self.name}.html")
        with self._opened() as store:
            # Those in trouble first: of very many rows the page has only the first.
            rows = chain.from_iterable(rows_of(store, state) for state in TROUBLES_FIRST)
            put(path, report_page(snapshot(store, store.grid().clock.now()), rows))
        return path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def attach_grid(name: str, on: Target | Service | None = None) -> GridHandle:
    """Return the handle on a grid that there is.

    Args:
        name: Of the grid.
        on: In whose bucket to look for it, of a grid that another machine runs, or has run, and shared; None is a grid
            of this machine, also one that it has handed over to AWS Batch.

    Raises:
        InvalidRequest: There is none of this name; the message lists those that there are.
        ServiceError: The bucket cannot be read.
    """
    service = None if on is None else connect(on)
    handle = GridHandle(name, None if service is None else objects_of(name, service), service)
    with handle._opened():
        return handle
