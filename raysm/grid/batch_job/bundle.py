"""The object by which a grid is handed over to its controller: a planned grid flows in, a ZIP with all files flows out.

It is named by its digest, and the call that makes the Batch job says the name: who may write to the bucket, and not
call Batch, can neither change nor add what the controller runs.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

from raysm.client.source.package import Package, package_of
from raysm.errors import InvalidPayload, InvalidRequest
from raysm.grid.batch_job.handover import SOURCE, WHEELS, Handover, handover_of, wheels_of
from raysm.grid.planning import Planned
from raysm.request import Workload
from raysm.request.codec import from_json, to_json
from raysm.request.workload import built_in_kind

__all__ = ["bundle_of", "name_of", "unpack"]

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
