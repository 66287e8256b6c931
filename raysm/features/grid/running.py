"""Run a grid in this process until it is over, and stop a grid.

All state is in the grid's file, so that the same request continues a grid: done rows stay done,
running jobs are found again, and new rows of the source are added.
"""

import contextlib
import functools
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysm.core.client.submit import Prepared
from raysm.core.protocol.home import Clock, private_folder
from raysm.core.protocol.names import counted
from raysm.core.request import Target
from raysm.core.request.codec import to_json
from raysm.core.request.workload import plain
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.grid.attempt import Attempt
from raysm.features.grid.batch_job.grid_secret import Seal, agree_on_secret
from raysm.features.grid.batch_job.state import Folder, RemoteState, Unreachable, recall
from raysm.features.grid.capacity import set_quota
from raysm.features.grid.controller import SHORTEST_S, Controller
from raysm.features.grid.grid_request import MAX_NAMED, GridRequest, join
from raysm.features.grid.limiter import Limiter
from raysm.features.grid.local_grids import GridTarget, keep_target, read_target
from raysm.features.grid.placement import offers_of, placement_of
from raysm.features.grid.plan import PlannedGrid, ReadyGrid, regions_and_types
from raysm.features.grid.rates import FREE_S, GAUGE_S
from raysm.features.grid.region import Prepare, Region
from raysm.features.grid.row import Row
from raysm.features.grid.sources.databases import UserDatabase, database_of
from raysm.features.grid.stopping import removed_regions_in_use
from raysm.features.grid.store.database import naming_file
from raysm.features.grid.store.store import Store, path_of
from raysm.features.grid.template import Services, preparing, secret_of
from raysm.features.grid.write_back import make_table, write_back

WRITE_BACK_S = 10.0
"""Seconds between two writes to the user's database, since steps may follow each other fast."""

LAST_WRITE_BACK_S = 600.0
"""Seconds after the end of the grid in which writing the last states is tried again."""

UNREACHABLE_S = 5.0
"""Pause before an unreachable lease is tried again."""

BUCKETS_FILE = "rates.sqlite"
"""File of the token buckets of all grids of this machine, since rates are the account's; ``.db``
files are grids."""

FOLLOW_STOP_S = 300.0
"""Seconds for which ``stop_grid`` follows the jobs: SageMaker gives each 120 s to save its work."""

_log = logging.getLogger("raysm")


class Running:
    def __init__(
        self,
        store: Store,
        controller: Controller,
        limiter: Limiter,
        added: int,
        clock: Clock,
        *,
        state: RemoteState | None = None,
        database: UserDatabase | None = None,
    ) -> None:
        self.store = store
        self.added = added
        self.clock = clock
        self.removed = controller.removed
        self._controller = controller
        self._limiter = limiter
        self._state = state
        self._database = database
        self._written_s = 0.0
        self._over_s: float | None = None
        """When the grid was over, while its last states are not written back."""

    def step(self, now: float) -> float | None:
        try:
            with naming_file(self.store.database.path):
                if self._state is not None:
                    self._state.renew(now)
                wait_s = self._controller.step(now)
        except Unreachable as error:
            # Like a kill: the next step continues from the store.
            _log.warning("nothing is sent until this is solved: %s", error)
            return UNREACHABLE_S
        if self._database is not None and (wait_s is None or now - self._written_s >= WRITE_BACK_S):
            self._written_s = now
            if wait_s is not None:
                self._over_s = None
            elif self._over_s is None:
                self._over_s = now
            try:
                write_back(self.store, self._database)
            except ServiceError as error:
                # The rows stay marked in the store.
                _log.warning("not written back yet: %s", error)
                if self._over_s is None:
                    return wait_s
                if now - self._over_s >= LAST_WRITE_BACK_S:
                    raise ServiceError(
                        "the grid is over, but the states of its last rows are not "
                        f"in the database: {error}",
                        remedy="run the grid again when the database answers: it only writes them",
                    ) from error
                return WRITE_BACK_S
        return wait_s

    def run(
        self, sleep: Callable[[float], Any] | None = None, clock: Callable[[], float] | None = None
    ) -> None:
        """Make steps until the grid is over or paused.

        By default, the service's clock gives the time and the pauses.
        """
        pause = sleep or self.clock.sleep
        moment = clock or self.clock.now
        while (wait_s := self.step(now := moment())) is not None:
            # Subtract the step's own duration from the wait.
            pause(max(SHORTEST_S, wait_s - max(0.0, moment() - now)))

    def close(self) -> None:
        if self._state is not None:
            self._state.close()
        self.store.close()
        self._limiter.close()


def open_running(
    grid: ReadyGrid,
    services: Services,
    *,
    now: float | None = None,
    goes_on: bool = False,
    root: Path | None = None,
    away: str | None = None,
) -> Running:
    """Create a grid, or continue the one of this name.

    A grid that a Batch job ran last is taken back first.

    Args:
        grid: The request, its rows, and what is known of prices and quotas.
        services: Return the service of a target.
        now: Seconds since the epoch; the service's clock by default.
        goes_on: Continue a grid that its first failures have paused.
        root: Folder of the grids' files.
        away: In a Batch job, the folder in S3 with the grid's state.

    Raises:
        LeaseLost: A Batch job runs the grid, or another attempt of this one.
    """
    request = grid.request
    target = request.template.target
    path = path_of(request.name, root)
    # One service per target, since each service creates its own clients.
    given = services
    services = functools.lru_cache(lambda target: given(target).unrepeated())
    with naming_file(path), contextlib.ExitStack() as on_error:
        clock = services(target).clock
        now = clock.now() if now is None else now
        private_folder(path.parent.parent, path.parent.name)
        store = Store(path)
        on_error.callback(store.database.close)
        kept = read_target(path)
        state = None
        if away is not None:
            state = _take_state(
                request, store, Folder(services(target), away, request.template.output_kms_key)
            )
            on_error.callback(state.close)
        elif kept is not None and kept.away is not None:
            recall(store, path, Folder(services(kept.target), kept.away))
        added = _store_request(grid, store, now, clock)
        if goes_on:
            store.go_on(now)
        limiter = Limiter(path.parent / BUCKETS_FILE, account=account_of(target), moment=clock.now)
        controller = _make_controller(grid, store, limiter, services, path, now, state)
        keep_target(
            path, GridTarget(target=target, controller=None if kept is None else kept.controller)
        )
        database = None
        if request.rules.write_back:
            database = database_of(written_to(request))
            make_table(database)
        on_error.pop_all()
        return Running(store, controller, limiter, added, clock, state=state, database=database)


def _take_state(request: GridRequest, store: Store, folder: Folder) -> RemoteState:
    """Take the state of a grid from the folder in S3, in the Batch job that runs it."""
    secret = agree_on_secret(Path(store.database.path), folder.parameter)
    state = RemoteState(folder, store, Seal(secret, folder.place))
    if not state.take(time.sleep):
        raise InvalidRequest(
            f"the grid {request.name!r} was taken back: nothing is left to do here"
        )
    return state


def _make_controller(
    grid: ReadyGrid,
    store: Store,
    limiter: Limiter,
    services: Services,
    path: Path,
    now: float,
    state: RemoteState | None,
) -> Controller:
    request = grid.request
    target = request.template.target
    prepare = preparing(request.template, store.grid(), secret_of(path), services)
    open_region = functools.partial(_open_region, target, services, prepare)
    regions, types = regions_and_types(request, grid.rows, grid.facts.own_region)
    offers = offers_of(
        regions,
        types,
        grid.facts.prices,
        markets=request.markets,
        count=request.count,
        volume_gb=request.template.volume_gb,
    )
    return Controller(
        store,
        {name: open_region(name) for name in regions},
        placement_of(request.rules, offers),
        limiter,
        gauge_s=GAUGE_S if target.is_billed else FREE_S,
        removed={name: open_region(name) for name in removed_regions_in_use(store, regions, now)},
        guard=None if state is None else state.cover,
    )


def _open_region(target: Target, services: Services, prepare: Prepare, name: str) -> Region:
    return Region(services(target.reaching((name,)).in_region(name)), prepare)


def _store_request(grid: ReadyGrid, store: Store, now: float, clock: Clock) -> int:
    """Store the request and its rows; return how many rows are new."""
    request = grid.request
    template = identity_of(grid.request)
    kept = store.make(
        request.name,
        rules=request.rules,
        now=now,
        template=template,
        source=json.dumps(request.source.description),
    )
    if changed := changed_options(kept.template, template):
        raise InvalidRequest(
            f"a grid {request.name!r} exists with other options: {'; '.join(changed)}",
            remedy=f"give this one another --name, or remove {store.database.path}",
        )
    store.change_rules(request.rules, template=template)
    store.change_clock(clock)
    if isinstance(grid, PlannedGrid):
        store.note_plan(grid.plan.usd)
    added = join(store, grid.rows)
    keys = {row.key for row in grid.rows}
    if gone := [key for key in store.rows.waiting_keys() if key not in keys]:
        # Without a key column, a corrected value makes another key, and the old row would run
        # unnoticed.
        _log.warning(
            "%s not in the source any more, and will run: %s; "
            "give the rows a column key, so that a corrected row takes the place of the old one",
            f"{counted(len(gone), 'waiting row')} of the grid {'is' if len(gone) == 1 else 'are'}",
            ", ".join(gone[:MAX_NAMED]) + (" …" if len(gone) > MAX_NAMED else ""),
        )
    with store.database.transaction("quotas", fenced=False):
        for place, quota in grid.facts.quotas.items():
            set_quota(store, place, quota, now)
    return added


def identity_of(request: GridRequest) -> str:
    if request.identity:
        return request.identity
    template = {
        "workload": to_json(request.template.workload),
        "options": to_json(dict(request.template.options)),
    }
    # A script's path counts, not its text, so that the grid continues after the user has corrected
    # the script.
    template["workload"].pop("code", None)
    return json.dumps(template, sort_keys=True, default=str)


TIME_LIMIT = "limits.max_runtime_s"
"""An option that may change while a grid runs: jobs that are sent later have the new limit."""


def changed_options(before: str, after: str) -> list[str]:
    """Return each option that differs between two identities of a grid, with both values."""
    was = _flat(json.loads(before))
    now = _flat(json.loads(after))
    names = sorted(name for name in {*was, *now} - {TIME_LIMIT} if was.get(name) != now.get(name))
    return [
        f"{name} was {plain(name, was.get(name))!r}, is {plain(name, now.get(name))!r}"
        for name in names
    ]


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Return the values of nested objects by names such as ``cluster.count``."""
    if not isinstance(value, Mapping):
        return {name: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        # The options themselves, and those of the workload, are named as the user names them.
        is_part = name == "" and key in ("workload", "options")
        prefix = "" if is_part else f"{name}.{key}".lstrip(".")
        flat |= _flat(inner, prefix)
    return flat


def account_of(target: Target) -> str:
    return f"{target.kind}/{getattr(target, 'profile', None) or ''}"


def written_to(request: GridRequest) -> Any:
    on = request.source.database
    if on is None:
        raise InvalidRequest(
            "write_back needs rows from a query: "
            "the states are written to the database of the query"
        )
    return on


@dataclass(frozen=True, kw_only=True, slots=True)
class GridStop:
    stopped: tuple[str, ...] = ()
    open: int = 0
    has_controller: bool = False
    """True if a controller holds the grid's lease: it stops the open jobs at its next step, within
    10 s."""


def stop_grid(store: Store, path: Path, services: Services) -> GridStop:
    """Stop a grid of this machine.

    If no controller holds its lease, this process stops the open jobs.
    """
    grid = store.grid()
    if not store.request_stop(grid.clock.now()):
        return GridStop()
    if store.database.has_controller(grid.clock.now()):
        return GridStop(open=store.attempts.open_count(), has_controller=True)
    kept = read_target(path)
    if kept is None and store.attempts.open_count():
        return GridStop(open=store.attempts.open_count())
    before = [attempt.name for attempt in store.attempts.open()]
    try:
        grid = store.grid()

        def never(row: Row, attempt: Attempt) -> Prepared:
            raise AssertionError("a grid that is stopping sends nothing")

        # Without a target no job is open.
        removed: dict[str, Region] = {}
        account = ""
        if kept is not None:
            account = account_of(kept.target)
            for name in removed_regions_in_use(store, [], grid.clock.now()):
                removed[name] = _open_region(kept.target, services, never, name)
        limiter = Limiter(path.parent / BUCKETS_FILE, account=account, moment=grid.clock.now)
        try:
            controller = Controller(
                store, {}, placement_of(grid.rules, []), limiter, removed=removed
            )
            deadline = time.monotonic() + FOLLOW_STOP_S
            while (
                wait_s := controller.step(grid.clock.now())
            ) is not None and time.monotonic() < deadline:
                grid.clock.sleep(max(SHORTEST_S, wait_s))
        finally:
            limiter.close()
    finally:
        store.database.release_lease()
    still = {attempt.name for attempt in store.attempts.open()}
    return GridStop(stopped=tuple(name for name in before if name not in still), open=len(still))
