"""Brings the channels of a job to its instances, without copying them.

What flows in are the job's channels, what flows out is what each instance gets below its base folder. Everything is
looked at before anything starts: what is missing or empty is said then.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from raysm.errors import InvalidInput, InvalidRequest
from raysm.local.job_spec import JobSpec

__all__ = ["Entry", "hand_over", "local_path", "resolve"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder of this machine and where it appears."""

    name: PurePosixPath
    """Relative to the base folder: ``input/data/matrix``, or ``input/data/matrix/part-1.npy``."""
    source: Path
    """Absolute, links resolved."""
    owned: bool = False
    """Whether the instance gets files of its own."""


def local_path(channel: str, uri: str) -> Path:
    """Return the path that ``uri`` names on this machine, absolute.

    Raises:
        InvalidRequest: It names no path of this machine.
    """
    parts = urlsplit(uri)
    if parts.scheme == "s3":
        raise InvalidRequest(
            f"channel {channel!r}: local instances cannot read {uri}; download it first "
            f"(aws s3 cp --recursive {uri} FOLDER) and give the folder"
        )
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InvalidRequest(
                f"channel {channel!r}: {uri} names the host {parts.netloc!r}; a path of this machine is file:///path"
            )
        return Path(unquote(parts.path)).absolute()
    if "://" in uri:
        raise InvalidRequest(f"channel {channel!r}: {uri} is no path, file://… or s3://…")
    return Path(uri).expanduser().absolute()


def resolve(spec: JobSpec) -> dict[str, list[Entry]]:
    """Return what each host gets, channel by channel.

    FullyReplicated is the folder itself, or a folder with the one file in it. ShardedByS3Key deals the objects out:
    sorted by key, as S3 lists them (by their UTF-8 bytes), object i goes to host ``i % n``, so that shares differ by
    one object at most. AWS promises about 1/n for each and does not say which; dealing is the choice because keys
    often grow with time or size, and a share that is a run of neighbours would invite code to count on it. A host
    whose share is empty finds an empty folder.

    Raises:
        InvalidInput: A path is missing, unreadable, empty, or neither file nor folder.
    """
    found: dict[str, list[Entry]] = {host: [] for host in spec.hosts}
    for channel in spec.channels:
        source, place, hosts = _existing(channel.name, channel.source), spec.place_of(channel), spec.hosts_of(channel)
        if channel.distribution == "ShardedByS3Key":
            for index, (key, path) in enumerate(_objects(source)):
                found[hosts[index % len(hosts)]].append(Entry(place / key, path.resolve(), channel.owned))
            continue
        name = place if source.is_dir() else place / source.name
        for host in hosts:
            found[host].append(Entry(name, source.resolve(), channel.owned))
    return found


def hand_over(found: Mapping[str, list[Entry]], bases: Mapping[str, Path]) -> None:
    """Give each host the files that are to be its own: copies, and the last one that wants a file gets that itself.

    Args:
        found: As ``resolve`` returned it.
        bases: The base folder of each host that is started.
    """
    wanted: dict[Path, list[Path]] = {}
    for host, base in bases.items():
        for entry in found[host]:
            if entry.owned:
                wanted.setdefault(entry.source, []).append(base / entry.name)
    for source, targets in wanted.items():
        for number, target in enumerate(targets, start=1):
            for below in _files(source):
                path = target / below.relative_to(source) if below != source else target
                path.parent.mkdir(parents=True, exist_ok=True)
                if number == len(targets):
                    shutil.move(below, path)
                else:
                    shutil.copy2(below, path)


def _existing(channel: str, path: Path) -> Path:
    if not path.exists():
        raise InvalidInput(f"channel {channel!r}: {path} is not there; check the path")
    if not path.is_dir() and not path.is_file():
        raise InvalidInput(f"channel {channel!r}: {path} is neither a file nor a folder")
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise InvalidInput(f"channel {channel!r}: {path} cannot be read; change its permissions")
    if path.is_dir() and not _objects(path):
        raise InvalidInput(f"channel {channel!r}: the folder {path} holds no file; give one that does")
    return path


def _objects(source: Path) -> list[tuple[str, Path]]:
    """Return the files below ``source`` by key, sorted as S3 sorts."""
    if source.is_file():
        return [(source.name, source)]
    keys = [(path.relative_to(source).as_posix(), path) for path in _files(source)]
    return sorted(keys, key=lambda item: os.fsencode(item[0]))


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    files = (Path(folder, name) for folder, _, names in os.walk(source) for name in names)
    return [path for path in files if path.is_file()]
