"""What the controller of a grid is given: the request as JSON, and a ZIP with the user's files.

The ZIP is named by its digest, and the Batch job names the ZIP: a user who can write to the bucket but not call Batch
cannot change what the controller runs.
"""

import dataclasses
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from raysm.client.costs.prices import PriceTable, RegionPrices
from raysm.client.options import request_fields
from raysm.client.source.package import Package, package_of
from raysm.errors import InvalidPayload, InvalidRequest
from raysm.grid.filling import Template
from raysm.grid.grid_request import GridRequest
from raysm.grid.plan import places_of
from raysm.grid.planning import Planned
from raysm.grid.rows.source import Source, source_again, source_of
from raysm.grid.rules import Rules
from raysm.grid.running import identity_of
from raysm.request import Input, JobRequest, Target, Workload
from raysm.request.codec import from_json, hints_of, to_json
from raysm.request.workload import built_in_kind

__all__ = ["Handover", "SOURCE", "WHEELS", "bundle_of", "handover_of", "name_of", "unpack", "wheels_of"]

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


HANDOVER = "handover.json"
FOLDER = "controllers"
"""Below the folder of a grid's copies."""

BEGINNING = (1980, 1, 1, 0, 0, 0)
"""The earliest moment that a ZIP can tell: the same files are the same object, whenever they were packed."""


def bundle_of(grid: Planned) -> bytes:
    """Return what the controller of a grid needs.

    Raises:
        InvalidRequest: Something of it cannot travel.
    """
    workload, files = _moved(grid.request.template.package or grid.request.template.workload)
    files |= {f"{WHEELS}/{wheel.name}": wheel for wheel in wheels_of(grid.request)}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        _write(archive, HANDOVER, json.dumps(to_json(handover_of(grid, workload)), indent=1).encode())
        # In order, whatever the file system's was: it is part of the digest.
        for name in sorted(files):
            _write(archive, name, files[name].read_bytes())
    return stream.getvalue()


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, BEGINNING), content, zipfile.ZIP_DEFLATED)


def _moved(workload: Workload | Package) -> tuple[Workload, dict[str, Path]]:
    """Return a workload whose script lies in ``SOURCE``, and the files that belong there."""
    package = package_of(workload)
    # Read by the controller, a pickle would run there; and the module of a kind of one's own is not in its image.
    if package.pickled is not None or built_in_kind(package.workload.kind) is None:
        raise InvalidRequest(
            f"{package.title} is no script, and its code cannot be brought to a controller elsewhere: run this grid "
            "here, or make a script of it"
        )
    script = package.workload.entry_script
    if script is None or package.source is None:
        return package.workload, {}
    assert package.source.script is not None, "a script travels with what it imports"
    files: Mapping[str, Path] = package.source.files
    return script.moved_to(package.source.script), {f"{SOURCE}/{name}": path for name, path in files.items()}


def name_of(bundle: bytes) -> str:
    """Return the name of a bundle below the folder of the grid's copies."""
    return f"{FOLDER}/{hashlib.sha256(bundle).hexdigest()}.zip"


def unpack(bundle: bytes, name: str, folder: Path) -> Handover:
    """Write the user's files into a folder; return what is told.

    Args:
        bundle: As it was read.
        name: By which it was asked for; a path before it does no harm.
        folder: Is there, and is empty.

    Raises:
        InvalidPayload: It is not what its name says.
        InvalidRequest: Another raysm has made it.
    """
    if not name.endswith(name_of(bundle)):
        raise InvalidPayload(f"{name} is not as it was written: its content has another digest; submit the grid again")
    # Only now: names in it are no paths to trust before the digest is the one that was said.
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        archive.extractall(folder)
    return from_json(Handover, json.loads((folder / HANDOVER).read_bytes()), HANDOVER)
