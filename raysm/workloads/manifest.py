"""The manifest of a result: its files with digests, versions, and how long the job took.

The driver, one process for one job, also notes how long the job took to begin: from the first program in the head's
container to the workload on a formed cluster.
"""

import contextlib
import platform
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import raysm
from raysm.bootstrap.environment import Environment
from raysm.contract.result import MANIFEST, Manifest, ResultFile, described_file
from raysm.contract.store import PARTIAL, sha256_of
from raysm.request import JobRequest
from raysm.request.codec import to_json

__all__ = ["Beginning", "START_S", "write_manifest"]

START_S = "start_s"
"""Name of the figure: seconds."""


class Beginning:
    """When this process's workload began."""

    _measures: Mapping[str, float] = {}

    @classmethod
    def note(cls, environment: Environment, now_s: float | None = None) -> None:
        """Note that it begins now.

        Args:
            environment: What the head was told, with the moment at which its container began.
            now_s: Seconds since the epoch; None asks the clock.
        """
        if environment.began_s is not None:
            now_s = time.time() if now_s is None else now_s
            # Not below 0: the clock may have been set in between.
            cls._measures = {START_S: round(max(0.0, now_s - environment.began_s), 3)}

    @classmethod
    def measures(cls) -> Mapping[str, float]:
        """Return the figure by its name; nothing where nobody knows."""
        return cls._measures


def write_manifest(
    request: JobRequest,
    folder: Path,
    *,
    instances: tuple[str, ...],
    phases_s: Mapping[str, float],
    packages: tuple[str, ...] = (),
    described: tuple[ResultFile, ...] = (),
    measures: Mapping[str, float] | None = None,
    summary: str = "",
) -> Manifest | None:
    """Write the manifest into ``folder``, as the last file of the result.

    Args:
        request: What was asked for.
        folder: The head's model folder.
        instances: The hosts that took part.
        phases_s: Seconds of each phase.
        packages: Whose versions count, beside raysm's, Python's and Ray's.
        described: Files of which more is known than their names and sizes; they come first.
        measures: Figures of the run.
        summary: For people.

    Returns:
        The manifest, without the files of other instances; None if the only instance left nothing, or if the user's own
        code has written a file of that name.
    """
    # A user's own file of that name is his result; ours would destroy it.
    if (folder / MANIFEST).exists():
        return None
    names = {file.name for file in described}
    # What is half-written by a process that was just killed is no result.
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(PARTIAL))
    others = [path for path in paths if path.relative_to(folder).as_posix() not in names]
    files = (*described, *(_file(path, folder) for path in others))
    # Other instances may leave files, which the head adds at the end of the job.
    if not files and len(instances) == 1:
        return None
    manifest = Manifest(
        job=request.name,
        workload=to_json(request.workload),
        inputs={name: to_json(channel) for name, channel in request.inputs.items()},
        files=files,
        versions={"raysm": raysm.__version__, "python": platform.python_version()} | _versions("ray", *packages),
        instances=instances,
        phases_s={name: round(seconds, 3) for name, seconds in phases_s.items()},
        measures={**(measures or {}), **Beginning.measures()},
        summary=summary,
    )
    manifest.write(folder)
    return manifest


def _versions(*packages: str) -> dict[str, str]:
    versions = {}
    for package in packages:
        # An image may have a package without its metadata (a source tree on the path): no version is better than a
        # wrong one.
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _file(path: Path, folder: Path) -> ResultFile:
    return described_file(path.relative_to(folder).as_posix(), path.stat().st_size, sha256_of(path))
