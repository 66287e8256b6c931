"""The handover of a grid to a Batch job: a ZIP with the request as JSON and the user's files.

The ZIP is named by its digest, and the Batch job names the ZIP, so that a user who can write to the
bucket but not call Batch cannot change what the controller runs. Each attempt of the Batch job
starts from the ZIP and the grid's state in S3 only, so it does not matter how an earlier attempt
was lost.
"""

import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from raysm.core.client.costs.prices import PriceTable, RegionPrices
from raysm.core.client.options import request_fields
from raysm.core.client.service import Service
from raysm.core.client.source.lock import with_project_packages
from raysm.core.client.source.package import Package, package_of
from raysm.core.client.storage.s3 import read_versioned
from raysm.core.request import Input, JobRequest, Target, Workload
from raysm.core.request.codec import from_json, hints_of, to_json
from raysm.core.request.workload import built_in_kind
from raysm.errors import InvalidPayload, InvalidRequest
from raysm.features.grid.batch_job.grid_secret import Seal
from raysm.features.grid.batch_job.state import STATE, Folder, read_copy
from raysm.features.grid.grid_request import GridRequest
from raysm.features.grid.plan import GridFacts, PlannedGrid, ReadyGrid, regions_and_types
from raysm.features.grid.row import RowState
from raysm.features.grid.rules import Rules
from raysm.features.grid.running import Running, identity_of, open_running
from raysm.features.grid.sources.source import source_from_description, source_of
from raysm.features.grid.store.store import GridState
from raysm.features.grid.template import Services, Template

FORMAT = 1

MAX_BUNDLE_BYTES = 1 << 30
"""Most bytes of a ZIP, which is read into memory."""

HANDOVER = "handover.json"
SOURCE = "source"
WHEELS = "wheels"
"""Contents of the ZIP: the handover, and folders of the user's files."""

BEGINNING = (1980, 1, 1, 0, 0, 0)
"""The earliest time in a ZIP, used for all files so that the same files always have the same
digest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    name: str
    identity: str
    """``identity_of`` on the user's machine, since the paths of its files have changed."""
    workload: Workload
    """A script's path is relative to ``SOURCE``."""
    target: Target
    options: Mapping[str, Any]
    regions: tuple[str, ...]
    instance_types: tuple[str, ...]
    count: int
    markets: tuple[bool, ...]
    source: Mapping[str, Any]
    own_region: str | None
    prices: tuple[RegionPrices, ...]
    """Prices of the grid's regions and types, since the image has only those that raysm comes
    with."""
    format: int = FORMAT

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise InvalidRequest(
                f"the grid {self.name!r} was handed over in format "
                f"{self.format} of another raysm, but this one reads {FORMAT}; "
                "give the controller an image with the raysm that submits it"
            )

    def request(self, folder: Path, rules: Rules) -> GridRequest:
        """Return the request, with the user's files in ``folder`` and the rules of the store."""
        hints = hints_of(JobRequest)
        options = {
            name: from_json(hints[name], value, name) for name, value in self.options.items()
        }
        wheels = sorted((folder / WHEELS).glob("*"))
        workload = self.workload
        if workload.entry_script is not None:
            workload = replace(cast(Any, workload), source_dir=str(folder / SOURCE))
        return GridRequest(
            name=self.name,
            identity=self.identity,
            template=Template(
                workload=workload,
                target=self.target,
                options=options | ({"wheels": wheels} if wheels else {}),
            ),
            # The store has the rows; the source is only needed for its database, for write-back.
            source=source_from_description(self.source) if rules.write_back else source_of(()),
            regions=self.regions,
            instance_types=self.instance_types,
            count=self.count,
            markets=self.markets,
            rules=rules,
        )


def handover_of(grid: PlannedGrid, workload: Workload) -> Handover:
    """Return the handover of a grid; the workload's paths are relative to ``SOURCE``."""
    request = grid.request
    region = grid.facts.own_region
    target = request.template.target
    regions, types = regions_and_types(request, grid.rows, region)
    options = request.template.options
    wheels = map(Path, options.get("wheels") or ())
    package = request.template.package or package_of(request.template.workload)
    # The controller finds neither the lock nor uv.
    chosen, _ = with_project_packages(options, package.source, wheels)
    fields = request_fields(chosen)
    # The JSON of a field has one type.
    if "inputs" in fields:
        inputs = fields["inputs"].items()
        fields["inputs"] = {
            name: item if isinstance(item, Input) else Input(str(item)) for name, item in inputs
        }
    lists = [each for each in grid.facts.prices.lists if each.region in regions]
    needed = [{name: usd for name, usd in each.usd.items() if name in types} for each in lists]
    prices = tuple(
        dataclasses.replace(each, usd=usd) for each, usd in zip(lists, needed, strict=True)
    )
    return Handover(
        name=request.name,
        identity=identity_of(request),
        workload=workload,
        target=target if region is None else target.within(region),
        options={name: to_json(value) for name, value in fields.items()},
        regions=request.regions,
        instance_types=request.instance_types,
        count=request.count,
        markets=request.markets,
        source=request.source.description,
        own_region=region,
        prices=prices,
    )


def bundle_of(grid: PlannedGrid) -> bytes:
    template = grid.request.template
    workload, files = _moved(template.package or template.workload)
    for wheel in map(Path, template.options.get("wheels") or ()):
        files[f"{WHEELS}/{wheel.name}"] = wheel
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:

        def write(name: str, content: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, BEGINNING), content, zipfile.ZIP_DEFLATED)

        write(HANDOVER, json.dumps(to_json(handover_of(grid, workload)), indent=1).encode())
        # Sorted, since the order is part of the digest.
        for name in sorted(files):
            write(name, files[name].read_bytes())
    return stream.getvalue()


def _moved(workload: Workload | Package) -> tuple[Workload, dict[str, Path]]:
    """Return the workload with its script in ``SOURCE``, and the files of the ZIP by name."""
    package = package_of(workload)
    # The controller would need to unpickle it, and its image lacks the modules of a user's own
    # kind.
    if package.pickled is not None or built_in_kind(package.workload.kind) is None:
        raise InvalidRequest(
            f"{package.title} is not a script, which a Batch job needs: "
            "run the grid on this machine, or give a script"
        )
    script = package.workload.entry_script
    if script is None or package.source is None:
        return package.workload, {}
    assert package.source.script is not None, "the package of a script has the script"
    files: Mapping[str, Path] = package.source.files
    return script.moved_to(package.source.script), {
        f"{SOURCE}/{name}": path for name, path in files.items()
    }


def name_of(bundle: bytes) -> str:
    return f"{hashlib.sha256(bundle).hexdigest()}.zip"


def unpack(bundle: bytes, name: str, folder: Path) -> Handover:
    if not name.endswith(name_of(bundle)):
        raise InvalidPayload(
            f"{name} was changed: its content has another digest; submit the grid again"
        )
    # The names in the ZIP are trusted only after the check.
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        archive.extractall(folder)
    return from_json(Handover, json.loads((folder / HANDOVER).read_bytes()), HANDOVER)


REFUSED = 2
"""Exit code of a command with an invalid request."""

NOT_ALL_DONE = 3
"""Exit code of a controller whose grid is paused, or over with rows that are neither done nor
stopped by the user."""


def take_up(uri: str, service: Service, folder: Path, services: Services = Service) -> Running:
    """Continue a grid that was handed over, and take its lease."""
    bundle = read_versioned(service, uri, MAX_BUNDLE_BYTES)
    if bundle is None:
        raise InvalidRequest(
            f"there is no object {uri}; raysm grid run --via batch hands a grid over"
        )
    handover = unpack(bundle.content, uri, folder)
    services = functools.lru_cache(services)
    place = uri.rpartition("/")[0]
    state = Folder(services(handover.target), place)
    secret = state.parameter.read()
    if secret is None and state.read(STATE) is not None:
        raise InvalidRequest(
            f"the parameter {state.parameter.name} with the secret of the grid {handover.name!r} "
            "does not exist: hand the grid over again, with the raysm of this image"
        )
    copy = None if secret is None else read_copy(state, Seal(secret, place))
    if copy is None:
        raise InvalidRequest(
            f"the grid {handover.name!r} was taken back: nothing is left to do here"
        )
    with contextlib.closing(copy.database):
        rules = copy.grid().rules
        rows = [record.row for record in copy.rows.all()]
    # The store has the quotas.
    facts = GridFacts(
        prices=PriceTable.of(handover.prices), quotas={}, own_region=handover.own_region
    )
    request = handover.request(folder, rules)
    grid = ReadyGrid(request=request, rows=rows, facts=facts)
    return open_running(grid, services, root=folder, away=place)


def exit_code(running: Running) -> int:
    if running.store.grid().state is GridState.PAUSED:
        return NOT_ALL_DONE
    return (
        0 if set(running.store.rows.states()) <= {RowState.DONE, RowState.STOPPED} else NOT_ALL_DONE
    )
