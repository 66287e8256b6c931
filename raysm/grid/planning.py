"""A grid before it begins: a request flows in; its rows, what is known of places, and the plan flow out.

What cannot be read is said, and not taken for something that does not limit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from raysm.client.costs.prices import PriceTable
from raysm.client.service import Service
from raysm.contract.source import source_of
from raysm.errors import RaysmError
from raysm.grid.asking import ask_prices, ask_quotas
from raysm.grid.grid_request import GridRequest
from raysm.grid.place import Place, Quota
from raysm.grid.plan import GridPlan, places_of, plan_grid
from raysm.grid.sending_rows import Services
from raysm.grid.task import Task
from raysm.request import Target

__all__ = ["Known", "Planned", "own_region", "planned", "reaching"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What is known of places when a grid begins."""

    prices: PriceTable
    """By region and type."""
    quotas: Mapping[Place, Quota]
    """As far as they could be read."""
    own_region: str | None = None
    """The target's."""
    notes: tuple[str, ...] = ()
    """What is to be said of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A grid that is ready to begin."""

    request: GridRequest
    """What is asked for, of a target that reaches all of its regions."""
    tasks: list[Task]
    """Its rows, read once."""
    facts: Known
    """Prices and quotas."""
    plan: GridPlan
    """What it would do."""


def planned(request: GridRequest, services: Services = Service) -> Planned:
    """Return a grid with its rows and its plan; the rows are read, and on AWS the quotas are asked for.

    Args:
        request: What is asked for.
        services: How a target is reached.

    Raises:
        InvalidRequest: What is asked for cannot be.
    """
    tasks = request.tasks()
    _check_script(request)
    request = reaching(request, tasks, services)
    facts = _known(request, tasks, services)
    plan = plan_grid(
        request,
        tasks,
        facts.prices,
        facts.quotas,
        today=datetime.now(UTC).date(),
        own_region=facts.own_region,
        notes=facts.notes,
    )
    return Planned(request=request, tasks=tasks, facts=facts, plan=plan)


def _check_script(request: GridRequest) -> None:
    """Refuse a script that cannot travel, as each row's job would be refused later.

    By then there would be a grid of that name, which takes no other script.
    """
    # What was pickled has no script, and which one a column names each row says.
    script = request.template.workload.entry_script if request.template.package is None else None
    if script is not None and not any("{" in (path or "") for path in (script.script, script.source_dir)):
        source_of(script)


def _known(request: GridRequest, tasks: Sequence[Task], services: Services) -> Known:
    region = own_region(request.template.target, services)
    quotas, notes = ask_quotas(request, tasks, region, services)
    prices = ask_prices(request, tasks, region, services)
    return Known(prices=prices, quotas=quotas, own_region=region, notes=notes)


def reaching(request: GridRequest, tasks: Sequence[Task], services: Services) -> GridRequest:
    """Return the same grid with a target that plays all of its regions, where a target has to be told which."""
    target = request.template.target
    if not hasattr(target, "regions"):
        return request
    own = own_region(target, services)
    # Its own first, though no row may run there: in its bucket lies what is shared of the grid, which has to be found,
    # and to stay there, whatever regions the grid is given today.
    regions = dict.fromkeys((*([own] if own else ()), *places_of(request, tasks, own)[0]))
    changes: dict[str, Any] = {"regions": tuple(regions)}
    return replace(request, template=replace(request.template, target=replace(target, **changes)))


def own_region(target: Target, services: Services) -> str | None:
    """Return the region that a target means by itself; None where it means none."""
    try:
        return services(target).region
    except RaysmError:
        # A plan of rows that all name their regions needs none.
        return None
