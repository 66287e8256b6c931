"""Bring the channels of a job to its instances: small ones as a copy for each, as on SageMaker, large ones as links.

All channels are checked before anything starts, so that a missing or empty one is reported then.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from raysm.contract.store import files_below, make_folder
from raysm.errors import InvalidInput, InvalidRequest
from raysm.local.job_spec import Channel, JobSpec

__all__ = [
    "Entry",
    "Originals",
    "SMALL_BYTES",
    "SMALL_FILES",
    "hand_over",
    "is_small",
    "local_path",
    "relink",
    "resolve",
]

INPUT = "input"
"""Below the base folder: nothing is collected of it, and it may hold a million files."""


def relink(base: Path, inside: Path) -> None:
    """Have absolute links below ``base`` lead to where it lies, which the instance called ``inside``."""
    for at, folders, names in os.walk(base):
        if Path(at) == base:
            folders[:] = [name for name in folders if name != INPUT]
        for path in (Path(at, name) for name in (*folders, *names)):
            if not path.is_symlink():
                continue
            target = path.readlink()
            if target.is_relative_to(inside) and ".." not in target.parts:
                # Of a container's root, where this process is not: then it stays, and leads nowhere.
                with contextlib.suppress(OSError):
                    path.unlink()
                    path.symlink_to(base / target.relative_to(inside))


Stamp: TypeAlias = tuple[int, int, int]
"""Inode, modification time in nanoseconds, size."""

MOST_SHOWN = 5
"""Files that a sentence names; the others it counts."""


class Originals:
    """The files of linked channels, as they were."""

    def __init__(self, channels: Iterable[Channel]) -> None:
        """Look at every file of the channels."""
        self._before = {
            channel.name: {path: _stamp(path) for path in files_below(channel.source)} for channel in channels
        }

    def complaints(self) -> list[str]:
        """Return a sentence for each channel of which something was changed or removed since."""
        return [
            f"raysm: the input of channel {name!r} was changed while the job ran, and it is linked, not copied: "
            f"{_shown(changed)}; a result that read it may be of either content. Write to SM_MODEL_DIR instead"
            for name, files in self._before.items()
            if (changed := [path for path, stamp in files.items() if _stamp(path) != stamp])
        ]


def _stamp(path: Path) -> Stamp | None:
    try:
        status = os.stat(path)
    # Removed, or not to be seen any more: it differs from what was there.
    except OSError:
        return None
    # The inode too: a file that was replaced by rename may bring its time and size along.
    return status.st_ino, status.st_mtime_ns, status.st_size


def _shown(paths: list[Path]) -> str:
    more = f" and {len(paths) - MOST_SHOWN} more" if len(paths) > MOST_SHOWN else ""
    return ", ".join(str(path) for path in sorted(paths)[:MOST_SHOWN]) + more


SMALL_BYTES = 64 << 20
"""Of a channel that is copied, at most: a disk writes so much in a moment, also for several instances."""
SMALL_FILES = 1000
"""Of a channel that is copied, at most."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder of this machine and where it appears."""

    name: PurePosixPath
    """Relative to the base folder: ``input/data/matrix``, or ``input/data/matrix/part-1.npy``."""
    source: Path
    """Absolute, links resolved."""
    owned: bool = False
    """Whether the instance gets files of its own."""
    movable: bool = False
    """Whether the source is the job's, which may move it."""


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
    # Not resolved: a link keeps its own name in the channel.
    return Path(uri).expanduser().absolute()


def resolve(spec: JobSpec) -> dict[str, list[Entry]]:
    """Return what each host gets, channel by channel.

    A channel that is small is the instance's own: on SageMaker a script may do with its input what it likes. A large
    one is linked: it is neither read nor copied.

    FullyReplicated is the folder itself, or a folder with the one file in it. ShardedByS3Key deals the objects out:
    sorted by key, as S3 lists them (by their UTF-8 bytes), object i goes to host ``i % n``, so that shares differ by
    one object at most. AWS promises about 1/n for each and does not say which; dealing is the choice because keys
    often grow with time or size, and a share that is a run of neighbours would invite code to count on it. A host
    whose share is empty finds an empty folder.

    Raises:
        InvalidInput: A path is missing, unreadable, empty, or neither file nor folder.
    """
    entries: dict[str, list[Entry]] = {host: [] for host in spec.hosts}
    for channel in spec.channels:
        source, place, hosts = _existing(channel.name, channel.source), spec.place_of(channel), spec.hosts_of(channel)
        owned = channel.owned or is_small(source)
        if channel.distribution == "ShardedByS3Key":
            for index, (key, path) in enumerate(_objects(source)):
                entries[hosts[index % len(hosts)]].append(Entry(place / key, path.resolve(), owned, channel.owned))
            continue
        name = place if source.is_dir() else place / source.name
        for host in hosts:
            entries[host].append(Entry(name, source.resolve(), owned, channel.owned))
    return entries


def hand_over(entries: Mapping[str, list[Entry]], bases: Mapping[str, Path]) -> None:
    """Give each host the files that are to be its own: copies; of what may be moved, the last one gets that itself.

    Args:
        entries: As ``resolve`` returned it.
        bases: The base folder of each host that is started; they are there.

    Raises:
        InvalidInput: A file cannot be read.
    """
    targets_of: dict[tuple[Path, bool], list[tuple[Path, Path]]] = {}
    for host, base in bases.items():
        for entry in entries[host]:
            if entry.owned:
                targets_of.setdefault((entry.source, entry.movable), []).append((base, base / entry.name))
    for (source, movable), targets in targets_of.items():
        for number, (base, target) in enumerate(targets, start=1):
            for below in list(files_below(source)):  # moving must not confuse the walk
                path = target / below.relative_to(source) if below != source else target
                make_folder(path.parent, within=base)
                # Only the last: the others have had their copies by then.
                if movable and number == len(targets):
                    shutil.move(below, path)
                else:
                    _copy(below, path)


def _copy(source: Path, target: Path) -> None:
    try:
        target.touch(mode=0o600)  # the token of a payload is among them: nobody else reads it in between
        shutil.copy2(source, target)
    except PermissionError as error:
        raise InvalidInput(f"the input {source} cannot be read; change its permissions, or leave it out") from error


def is_small(source: Path) -> bool:
    """Whether ``source`` is so small that every instance gets a copy of its own."""
    room = SMALL_BYTES
    for number, path in enumerate(files_below(source), start=1):
        room -= path.stat().st_size
        if room < 0 or number > SMALL_FILES:
            return False
    return True


def _existing(channel: str, path: Path) -> Path:
    if not path.exists():
        raise InvalidInput(f"channel {channel!r}: {path} is not there; check the path")
    if not path.is_dir() and not path.is_file():
        raise InvalidInput(f"channel {channel!r}: {path} is neither a file nor a folder")
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise InvalidInput(f"channel {channel!r}: {path} cannot be read; change its permissions")
    # SageMaker fails a job whose prefix has no object, too; here it need not even start.
    if path.is_dir() and next(files_below(path), None) is None:
        raise InvalidInput(f"channel {channel!r}: the folder {path} holds no file; give one that does")
    return path


def _objects(source: Path) -> list[tuple[str, Path]]:
    """Return the files below ``source`` by key, sorted as S3 sorts."""
    if source.is_file():
        return [(source.name, source)]
    keys = [(path.relative_to(source).as_posix(), path) for path in files_below(source)]
    # Not as text, nor by encode(): a file's name need not be UTF-8, and S3 goes by bytes.
    return sorted(keys, key=lambda item: os.fsencode(item[0]))
