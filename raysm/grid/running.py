"""A grid that runs here, in the foreground: a request flows in; steps are made until it is over, or somebody ends it.

All that is known is in its file, so that the same request goes on where it stopped: rows that are done stay done, jobs
that run are found again, and new rows of the source are added.
"""

import functools
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raysm.contract.home import Clock
from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.capacity import set_quota
from raysm.grid.controller import SHORTEST_S, Controller
from raysm.grid.database import naming_file
from raysm.grid.gauge import FREE_S, GAUGE_S
from raysm.grid.grid_request import GridRequest, join
from raysm.grid.limiter import Limiter
from raysm.grid.local_grids import GridTarget, forget_handover, keep_target
from raysm.grid.placement import offers_of, placement_of
from raysm.grid.plan import places_of
from raysm.grid.planning import Known
from raysm.grid.region import Prepare, Region, ServiceRegion
from raysm.grid.rows.databases import Database, database_of
from raysm.grid.sending_rows import Services, preparing, secret_of, secret_path
from raysm.grid.shared.lease import Unreachable
from raysm.grid.shared.sharing import FencedRegion, Sharing, objects_of, share_secret, sharing_of
from raysm.grid.stopping import left_regions
from raysm.grid.store import Store, path_of
from raysm.grid.task import Task
from raysm.grid.write_back import make_table, write_back
from raysm.request.codec import to_json

__all__ = ["LIMITS", "UNREACHABLE_S", "Running", "account_of", "identity_of", "open_running", "written_to"]

WRITE_BACK_S = 10.0
"""Seconds from one writing back to the next: a step may be every few milliseconds, and a database is elsewhere."""

UNREACHABLE_S = 5.0
"""Seconds after which the lease that other machines share is asked for again."""

LIMITS = "rates.sqlite"
"""Of all grids of this machine: the rates of the service's calls are the account's, whichever grid calls. Not
``.db``, as grids' files are: it would be listed among them, and be that of a grid of its name."""

_log = logging.getLogger("raysm")


class Running:
    """A grid with its controller.

    Attributes:
        store: All that is known of it.
        added: Rows that were new to it.
        clock: By which all of its moments are told: the service's.
        left: Regions that were taken out of the request while jobs of the grid were there.
    """

    def __init__(
        self,
        store: Store,
        controller: Controller,
        limiter: Limiter,
        added: int,
        clock: Clock,
        sharing: Sharing | None = None,
    ) -> None:
        """Take what ``open_running`` made."""
        self.store = store
        self.added = added
        self.clock = clock
        self.left = controller.left
        self._controller = controller
        self._limiter = limiter
        self._sharing = sharing
        self._database: Database | None = None
        self._written_s = 0.0

    def write_to(self, database: Database) -> None:
        """Have what becomes of the rows be written to a database.

        Raises:
            ServiceError: It has no table for it, and makes none.
        """
        make_table(database)
        self._database = database

    def step(self, now: float) -> float | None:
        """Make one step; return the seconds until the next one, None where the grid is over.

        Raises:
            LeaseLost: Another process runs this grid.
        """
        try:
            with naming_file(self.store.database.path):
                if self._sharing is not None:
                    self._sharing.hold(now)
                wait_s = self._controller.step(now)
        except Unreachable as error:
            # Ended in its midst, as by a kill: the next one goes on from what the store says.
            _log.warning("nothing is sent meanwhile: %s", error)
            return UNREACHABLE_S
        if self._database is not None and (wait_s is None or now - self._written_s >= WRITE_BACK_S):
            self._written_s = now
            try:
                write_back(self.store, self._database)
            except ServiceError as error:
                # It stays noted: neither rows nor jobs have to wait for a database.
                _log.warning("not written back yet: %s", error)
        return wait_s

    def run(self, sleep: Callable[[float], Any] | None = None, clock: Callable[[], float] | None = None) -> None:
        """Make steps until the grid is over or paused; how it stands is in its store.

        Args:
            sleep: How the time between two steps passes, in seconds of the service's clock; whoever shows the grid
                draws it there.
            clock: Returns the moment, in seconds since the epoch; None is the service's.

        Raises:
            LeaseLost: Another process runs this grid.
        """
        pause, moment = sleep or self.clock.sleep, clock or self.clock.now
        while (wait_s := self.step(now := moment())) is not None:
            if self.store.grid().state == "paused" and not self.store.open_count():
                return
            # From the step's own moment: its calls take a part of the wait, and each next one would be late by that.
            pause(max(SHORTEST_S, wait_s - max(0.0, moment() - now)))

    def close(self) -> None:
        """Let go of the grid: another process may run it at once."""
        if self._sharing is not None:
            self._sharing.close()
        self.store.close()
        self._limiter.close()


def open_running(
    request: GridRequest,
    tasks: list[Task],
    facts: Known,
    services: Services,
    *,
    now: float | None = None,
    goes_on: bool = False,
    planned_usd: tuple[float, float] | None = None,
    root: Path | None = None,
) -> Running:
    """Make a grid, or take up the one of this name.

    Args:
        request: What is asked for.
        tasks: Its rows.
        facts: Prices and quotas.
        services: How a target is reached.
        now: Seconds since the epoch; None is the service's own moment.
        goes_on: Whether a grid that its first failures have paused goes on.
        planned_usd: What all rows together are planned to cost, at best and at worst; None is unknown.
        root: Below which its file is; None is raysm's home.

    Raises:
        InvalidRequest: There is one of this name with another template, or no place is named.
        LeaseLost: A controller of another machine runs it.
        StoreFailed: The disk is full, or the file is damaged.
    """
    with naming_file(path_of(request.name, root)):
        return _opened(request, tasks, facts, services, now, goes_on, planned_usd, root)


def _opened(
    request: GridRequest,
    tasks: list[Task],
    facts: Known,
    services: Services,
    now: float | None,
    goes_on: bool,
    planned_usd: tuple[float, float] | None,
    root: Path | None,
) -> Running:
    services = _unrepeated(services)
    clock = services(request.template.target).clock
    now = clock.now() if now is None else now
    path = path_of(request.name, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    store = Store(path)
    sharing = _shared(request, store, path, services) if request.is_shared else None
    try:
        added = _take_up(request, tasks, facts, store, now, clock, planned_usd)
        if goes_on:
            store.go_on(now)
        limiter = Limiter(path.parent / LIMITS, account=account_of(request.template.target), moment=clock.now)
        prepare = preparing(request.template, store.grid(), secret_of(path), services)
        opened = _opening(request, services, prepare, store.grid().prefix, sharing)
        controller = _controller(request, tasks, facts, store, limiter, opened, now)
        running = Running(store, controller, limiter, added, clock, sharing)
        # What is known of it from here on lies here.
        forget_handover(path)
        keep_target(path, GridTarget(target=request.template.target, is_shared=request.is_shared))
        if request.rules.write_back:
            running.write_to(database_of(written_to(request)))
    except BaseException:
        # Whoever corrects it, here or elsewhere, is not to wait for a lease.
        if sharing is not None:
            sharing.close()
        store.database.close()
        raise
    return running


def _shared(request: GridRequest, store: Store, path: Path, services: Services) -> Sharing:
    """Return a grid's lease on all machines, taken; its file and its secret are then the latest that there are."""
    service = services(request.template.target)
    objects = objects_of(request.name, service, request.template.output_kms_key)
    sharing = sharing_of(store, objects, path)
    try:
        objects.make_bucket()
        sharing.take(time.sleep)
        share_secret(secret_path(path), objects)
    except BaseException:
        store.database.close()
        raise
    return sharing


def _take_up(
    request: GridRequest,
    tasks: list[Task],
    facts: Known,
    store: Store,
    now: float,
    clock: Clock,
    planned_usd: tuple[float, float] | None,
) -> int:
    """Have a grid's store know what is asked for; return how many rows are new."""
    template = identity_of(request)
    grid = store.make(
        request.name, rules=request.rules, now=now, template=template, source=json.dumps(request.source.description)
    )
    if grid.template != template:
        raise InvalidRequest(
            f"a grid {request.name!r} exists with another script, arguments or options; give this one another "
            f"--name, or remove {store.database.path}"
        )
    store.change_rules(request.rules)
    store.change_clock(clock)
    store.note_plan(planned_usd)
    added = join(store, tasks)
    with store.database.transaction("quotas", fenced=False):
        for place, quota in facts.quotas.items():
            set_quota(store, place, quota, now)
    return added


def _controller(
    request: GridRequest,
    tasks: list[Task],
    facts: Known,
    store: Store,
    limiter: Limiter,
    opened: Callable[[str], Region],
    now: float,
) -> Controller:
    regions, types = places_of(request, tasks, facts.own_region)
    offers = offers_of(regions, types, facts.prices, count=request.count, markets=request.markets)
    is_billed = request.template.target.is_billed
    return Controller(
        store,
        {name: opened(name) for name in regions},
        placement_of(request.rules, offers),
        limiter,
        gauge_s=GAUGE_S if is_billed else FREE_S,
        left={name: opened(name) for name in left_regions(store, regions, now)},
    )


def _opening(
    request: GridRequest, services: Services, make: Prepare, prefix: str, sharing: Sharing | None
) -> Callable[[str], Region]:
    """Return what opens a region by its name."""
    target = request.template.target

    def opened(name: str) -> Region:
        # By name alone: of those that were taken out a target that plays its regions need not know.
        region = ServiceRegion(services(target.reaching((name,)).in_region(name)), make, prefix)
        # In front of all that sends or stops: a controller that has lost the lease must do neither.
        return region if sharing is None else FencedRegion(region, sharing)

    return opened


def _unrepeated(services: Services) -> Services:
    # One of each target: every further one would make clients of its own.
    return functools.lru_cache(lambda target: services(target).unrepeated())


def identity_of(request: GridRequest) -> str:
    """Return what makes two grids the same: not where they may run, which can be widened at any time, but how."""
    return request.identity or json.dumps(_template_of(request), sort_keys=True, default=str)


def _template_of(request: GridRequest) -> dict[str, Any]:
    template = {"workload": to_json(request.template.workload), "options": to_json(dict(request.template.options))}
    # As of a script, whose path stands here and not its text: a mistake in it is mended, and the grid goes on.
    template["workload"].pop("code", None)
    return template


def account_of(target: Any) -> str:
    """Return what tells the accounts apart whose rates of calls are counted together."""
    # Two profiles may be two accounts; whether they are is not worth a call.
    return f"{target.kind}/{getattr(target, 'profile', None) or ''}"


def written_to(request: GridRequest) -> Any:
    """Return what names the database to which what becomes of the rows is written back.

    Raises:
        InvalidRequest: They come from none.
    """
    on = request.source.database
    if on is None:
        raise InvalidRequest("write_back needs rows from a query: the states are written to the database of the query")
    return on
