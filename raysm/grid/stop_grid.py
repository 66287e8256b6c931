"""Stop a grid: its controller stops the open jobs, or, if none holds the lease, this process does."""

import time
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from raysm.grid.controller import SHORTEST_S, Controller
from raysm.grid.database import is_gone
from raysm.grid.limiter import Limiter
from raysm.grid.local_grids import GridTarget, read_target
from raysm.grid.placement import placement_of
from raysm.grid.region import Region, ServiceRegion
from raysm.grid.running import LIMITS, account_of
from raysm.grid.sending_rows import Services, secret_path
from raysm.grid.shared.sharing import FencedRegion, Sharing, objects_of, share_secret, sharing_of
from raysm.grid.stopping import left_regions
from raysm.grid.store import Store

__all__ = ["GridStop", "stop_grid"]

STOP_S = 300.0
"""Seconds for which this process follows the jobs: SageMaker gives each 120 s to save its work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GridStop:
    """What stopping a grid has done."""

    stopped: tuple[str, ...] = ()
    """Names of the jobs that this call has stopped."""
    open: int = 0
    """Jobs that are still open."""
    has_controller: bool = False
    """Whether a controller holds the grid's lease: it stops the open jobs at its next step, within 10 s."""


def stop_grid(store: Store, path: Path, services: Services) -> GridStop:
    """Stop a grid of this machine.

    Args:
        store: The grid's.
        path: Of its file.
        services: Returns the service of a target.

    Raises:
        LeaseLost: A controller has taken the grid meanwhile.
        ServiceError: The bucket of a shared grid cannot be reached.
    """
    now = store.grid().clock.now()
    # Nobody runs a closed grid: it would be "stopping" for ever.
    if store.grid().state == "closed":
        return GridStop()
    store.change_grid("stopping", now, why="the user stops it", fenced=False)
    if _has_controller(store, now):
        return GridStop(open=store.open_count(), has_controller=True)
    kept = read_target(path)
    if kept is None and store.open_count():
        return GridStop(open=store.open_count())
    sharing = _shared(store, path, kept, services)
    try:
        before = [attempt.name for attempt in store.open_attempts()]
        _follow(store, path, kept, services, sharing)
        still = {attempt.name for attempt in store.open_attempts()}
        stopped = tuple(name for name in before if name not in still)
        return GridStop(stopped=stopped, open=len(still))
    finally:
        store.database.release_lease()
        if sharing is not None:
            sharing.close()


def _has_controller(store: Store, now: float) -> bool:
    row = store.database.connection.execute("SELECT owner, until_s FROM lease").fetchone()
    return row is not None and row["until_s"] > now and not is_gone(row["owner"])


def _shared(store: Store, path: Path, kept: GridTarget | None, services: Services) -> Sharing | None:
    """Take the lease that all machines share, of a grid that has one."""
    if kept is None or not kept.is_shared:
        return None
    objects = objects_of(store.grid().name, services(kept.target))
    sharing = sharing_of(store, objects, path)
    sharing.take(time.sleep)
    share_secret(secret_path(path), objects)
    return sharing


def _follow(store: Store, path: Path, kept: GridTarget | None, services: Services, sharing: Sharing | None) -> None:
    """Make a controller's steps until no job is open; it sends none, since the grid is stopping."""
    grid = store.grid()

    def never(*_: object) -> object:
        raise AssertionError("a grid that is stopping sends nothing")

    def opened(name: str) -> Region:
        assert kept is not None, "without a target no job is open"
        service = services(kept.target.reaching((name,)).in_region(name))
        region = ServiceRegion(service, never, grid.prefix)  # type: ignore[arg-type]
        return region if sharing is None else FencedRegion(region, sharing)

    account = "" if kept is None else account_of(kept.target)
    limiter = Limiter(path.parent / LIMITS, account=account, moment=grid.clock.now)
    try:
        controller = Controller(
            store,
            MappingProxyType({}),
            placement_of(grid.rules, []),
            limiter,
            left={name: opened(name) for name in left_regions(store, [], grid.clock.now())},
        )
        deadline = time.monotonic() + STOP_S
        while (wait_s := controller.step(grid.clock.now())) is not None and time.monotonic() < deadline:
            if sharing is not None:
                sharing.hold(grid.clock.now())
            grid.clock.sleep(max(SHORTEST_S, wait_s))
    finally:
        limiter.close()
