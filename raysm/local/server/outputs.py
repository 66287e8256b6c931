"""Download the channels of a job before it starts, and upload its outputs when it has ended."""

import contextlib
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from random import Random

from raysm.contract.result import SERVICE_REASON
from raysm.contract.store import files_below
from raysm.errors import InvalidRequest
from raysm.local.local_job import LocalJob
from raysm.local.scenario import Outputs
from raysm.local.server.definitions import Definition, Output, Source
from raysm.local.server.objects import Objects, is_file, join

__all__ = ["bring", "collect", "exit_message", "order", "upload"]


def bring(objects: Objects, sources: Sequence[Source], folder: Path) -> dict[str, tuple[Path, bool]]:
    """Download the channels that are in S3; return by channel where its data lies, and whether it is the job's.

    Args:
        objects: Where from.
        sources: The channels.
        folder: Downloads go below it; made where there are any.

    Raises:
        InvalidRequest: There is no such data; the message names the channel.
    """
    places: dict[str, tuple[Path, bool]] = {}
    for number, source in enumerate(sources):
        if is_file(source.uri) and not source.manifest:
            places[source.name] = (objects.local(source.uri), False)
            continue
        # Not by its name: Processing's may be any text, as ``/home/me`` or ``../..``.
        place = folder / str(number)
        folder.mkdir(exist_ok=True)
        try:
            bring_to = objects.download_listed if source.manifest else objects.download
            bring_to(source.uri, place)
        except InvalidRequest as error:
            raise InvalidRequest(f"Data download failed: channel {source.name!r}: {error}") from error
        places[source.name] = (place, True)
    return places


COMPRESSION = 1
"""Of the archives: the fastest; they are read once, on this machine."""


def order(job: LocalJob, switches: Outputs, chance: Random) -> list[str]:
    """Return the instances of a job as they are uploaded: of two files of one name the later one stays."""
    hosts = list(job.instances)
    chance.shuffle(hosts)
    return hosts if switches.last_writer == "random" else [*(host for host in hosts if host != job.head), job.head]


def upload(objects: Objects, definition: Definition, bases: Sequence[Path], scratch: Path, *, failed: bool) -> None:
    """Bring all outputs of a job that has ended.

    Args:
        objects: Where to.
        definition: Says which.
        bases: The base folders of the instances, in the order in which they are uploaded.
        scratch: A folder for archives on their way.
        failed: Whether the job has.

    Raises:
        InvalidRequest: One of them could not be brought; not of a job that failed, which has a reason already that
            tells more.
    """
    for output in definition.outputs:
        # SageMaker uploads no model of a job that failed.
        if failed and output.only_of_the_good:
            continue
        try:
            collect(objects, output, bases, scratch, definition.kms_key)
        except (InvalidRequest, OSError) as error:
            if not failed:
                raise InvalidRequest(f"Artifact upload failed: {error}") from error


def exit_message(job: LocalJob) -> str | None:
    """Return what the first instance that has any words left for whoever asks."""
    for host in job.instances:
        with contextlib.suppress(OSError):
            # A program wrote it, in whatever encoding.
            text = job.paths(host).failure.read_text(encoding="utf-8", errors="replace")[:SERVICE_REASON].strip()
            if text:
                return text
    return None


def collect(objects: Objects, output: Output, bases: Sequence[Path], scratch: Path, kms_key: str | None) -> None:
    """Bring one output.

    Args:
        objects: Where to.
        output: Which.
        bases: The base folders of the instances, in the order in which they are uploaded.
        scratch: A folder for an archive on its way.
        kms_key: Encrypts it in S3.

    Raises:
        InvalidInput: S3 refused it.
        OSError: There is no room for it.
    """
    files = _merged([base / output.place for base in bases])
    if not output.archive:
        links = {name for name, path in files.items() if _is_behind_link(name, path)}
        # They first, and as copies: what they lead to is moved away next.
        for name in sorted(files, key=lambda name: name not in links):
            objects.upload(files[name], join(output.uri, name), kms_key, is_ours=name not in links)
        return
    if not files and not output.even_empty:
        return
    archive = scratch / f"{output.place.name}.tar.gz"
    # What a link leads to is archived: its path says nothing where the archive is read.
    with tarfile.open(archive, "w:gz", compresslevel=COMPRESSION, dereference=True) as tar:
        for name, path in files.items():
            tar.add(path, name, recursive=False)
    objects.upload(archive, output.uri, kms_key)
    archive.unlink(missing_ok=True)


def _merged(folders: Sequence[Path]) -> dict[str, Path]:
    """Return every file by its name below its folder; also what lies behind a link, of a file as of a folder."""
    files: dict[str, Path] = {}
    for folder in folders:
        files |= {path.relative_to(folder).as_posix(): path for path in files_below(folder)}
    return dict(sorted(files.items()))


def _is_behind_link(name: str, path: Path) -> bool:
    above = path.parents[: len(PurePosixPath(name).parts) - 1]
    return any(part.is_symlink() for part in (path, *above))
