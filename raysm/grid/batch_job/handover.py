"""What the controller of a grid has to be told beside the grid's own record: a planned grid flows in, JSON flows out.

Rows, rules and all that became of them lie in the record, which every controller takes up. Here stands what a process
has in its memory: the request that the rows share, where they may run, and at which prices.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from raysm.client.costs.prices import PriceTable, RegionPrices
from raysm.client.options import request_fields
from raysm.errors import InvalidRequest
from raysm.grid.filling import Template
from raysm.grid.grid_request import GridRequest
from raysm.grid.plan import places_of
from raysm.grid.planning import Planned
from raysm.grid.rows.source import Source, source_again, source_of
from raysm.grid.rules import Rules
from raysm.grid.running import identity_of
from raysm.request import Input, JobRequest, Target, Workload
from raysm.request.codec import from_json, hints_of, to_json

__all__ = ["SOURCE", "WHEELS", "Handover", "handover_of", "wheels_of"]

FORMAT = 1
"""Of the whole: a raysm of another one does not touch it."""

SOURCE, WHEELS = "source", "wheels"
"""Folders beside it, of the user's files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """A grid, but for its record."""

    name: str
    """Of the grid."""
    identity: str
    """As ``identity_of`` says: the files that it names lie elsewhere now, and it is the same grid all the same."""
    workload: Workload
    """What every row runs; a script's path is relative to ``SOURCE``."""
    target: Target
    """Where to, as a program in the account reaches it."""
    options: Mapping[str, Any]
    """What the jobs have beside, as fields of a JobRequest in JSON."""
    regions: tuple[str, ...]
    """Where rows may run."""
    instance_types: tuple[str, ...]
    """On which types."""
    count: int
    """Instances of each job."""
    markets: tuple[bool, ...]
    """Whether on spare capacity."""
    source: Mapping[str, Any]
    """Where the rows came from."""
    own_region: str | None
    """The target's."""
    prices: tuple[RegionPrices, ...]
    """Of the grid's regions and types: what the user's machine has brought, an image does not have."""
    planned_usd: tuple[float, float] | None
    """What all rows were planned to cost."""
    format: int = FORMAT
    """Of this."""

    def __post_init__(self) -> None:
        """Check the format."""
        if self.format != FORMAT:
            raise InvalidRequest(
                f"the grid {self.name!r} was handed over by another raysm, in the format {self.format}; this one reads "
                f"{FORMAT}: give the controller an image with the raysm that sends it"
            )

    @property
    def price_table(self) -> PriceTable:
        """The prices as one table."""
        return PriceTable.of(self.prices)

    def request(self, folder: Path, rules: Rules) -> GridRequest:
        """Return what is asked for, with the user's files where they lie now.

        Args:
            folder: In which ``SOURCE`` and ``WHEELS`` lie.
            rules: As the grid's record says.

        Raises:
            InvalidRequest: An option cannot be, or the database of a query is not kept.
        """
        hints = hints_of(JobRequest)
        options = {name: from_json(hints[name], value, name) for name, value in self.options.items()}
        # By their names, as they were written: in which order pip is given them changes nothing.
        wheels = sorted((folder / WHEELS).glob("*"))
        workload = self.workload
        if workload.entry_script is not None:
            workload = replace(cast(Any, workload), source_dir=str(folder / SOURCE))
        return GridRequest(
            name=self.name,
            identity=self.identity,
            template=Template(
                workload=workload, target=self.target, options=options | ({"wheels": wheels} if wheels else {})
            ),
            source=self._source(rules),
            regions=self.regions,
            instance_types=self.instance_types,
            count=self.count,
            markets=self.markets,
            rules=rules,
            shared=True,
        )

    def _source(self, rules: Rules) -> Source:
        # The rows are those of the record: only the database to which they are written back is still asked for.
        return source_again(self.source) if rules.write_back else source_of(())


def handover_of(grid: Planned, workload: Workload) -> Handover:
    """Return what the controller of a grid is told.

    Args:
        grid: As it was planned.
        workload: What every row runs, its paths those of the folder ``SOURCE``.
    """
    request, region = grid.request, grid.facts.own_region
    target = request.template.target
    regions, types = places_of(request, grid.tasks, region)
    return Handover(
        name=request.name,
        identity=identity_of(request),
        workload=workload,
        target=target if region is None else target.within(region),
        options=_options(request.template.options),
        regions=request.regions,
        instance_types=request.instance_types,
        count=request.count,
        markets=request.markets,
        source=request.source.description,
        own_region=region,
        prices=tuple(_prices(grid.facts.prices, regions, types)),
        planned_usd=grid.plan.usd,
    )


def wheels_of(request: GridRequest) -> Sequence[Path]:
    """Return the packages that travel with the jobs of a grid."""
    return [Path(wheel) for wheel in request.template.options.get("wheels") or ()]


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    fields = request_fields(options)
    # A text stands for an input that has nothing but its URI; JSON knows one type for a field.
    if "inputs" in fields:
        inputs = fields["inputs"].items()
        fields["inputs"] = {name: item if isinstance(item, Input) else Input(str(item)) for name, item in inputs}
    return {name: to_json(value) for name, value in fields.items()}


def _prices(table: PriceTable, regions: Sequence[str], types: Sequence[str]) -> list[RegionPrices]:
    return [
        dataclasses.replace(each, usd={name: usd for name, usd in each.usd.items() if name in types})
        for each in table.lists
        if each.region in regions
    ]
