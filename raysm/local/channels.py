"""Brings the channels of a job to its instances, without copying them.

What flows in are the request's inputs, what flows out are the links that each instance gets below its folder of
channels. Everything is looked at before anything starts: what is missing or empty is said then.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from raysm.errors import InvalidInput, InvalidRequest
from raysm.request import Input

__all__ = ["Entry", "local_path", "resolve"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder of this machine and where it appears."""

    name: PurePosixPath
    """Relative to the folder of channels: ``matrix``, or ``matrix/part-1.npy``."""
    source: Path
    """Absolute, links resolved."""


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


def resolve(inputs: Mapping[str, Input], hosts: Sequence[str]) -> dict[str, list[Entry]]:
    """Return what each of ``hosts`` gets, channel by channel.

    FullyReplicated is the folder itself, or a folder with the one file in it. ShardedByS3Key deals the objects out:
    sorted by key, as S3 lists them (by their UTF-8 bytes), object i goes to host ``i % n``, so that shares differ by
    one object at most. AWS promises about 1/n for each and does not say which; dealing is the choice because keys
    often grow with time or size, and a share that is a run of neighbours would invite code to count on it. A host
    whose share is empty finds an empty folder.

    Args:
        inputs: By the name of the channel.
        hosts: In the order in which shares are dealt.

    Raises:
        InvalidRequest: An input is nothing that local instances can read.
        InvalidInput: A path is missing, unreadable, empty, or neither file nor folder.
    """
    found: dict[str, list[Entry]] = {host: [] for host in hosts}
    for channel, given in inputs.items():
        source = _existing(channel, local_path(channel, given.uri))
        if given.distribution == "ShardedByS3Key":
            for index, (key, path) in enumerate(_objects(source)):
                found[hosts[index % len(hosts)]].append(Entry(PurePosixPath(channel, key), path.resolve()))
            continue
        name = PurePosixPath(channel) if source.is_dir() else PurePosixPath(channel, source.name)
        for host in hosts:
            found[host].append(Entry(name, source.resolve()))
    return found


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
    files = [Path(folder, name) for folder, _, names in os.walk(source) for name in names]
    keys = [(path.relative_to(source).as_posix(), path) for path in files if path.is_file()]
    return sorted(keys, key=lambda item: os.fsencode(item[0]))
