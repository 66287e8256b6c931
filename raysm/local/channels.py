"""Bring the channels of a job to its instances: small ones as a copy for each, as on SageMaker, large ones as links.

All channels are checked before anything starts, so that a missing or empty one is reported first.
"""

import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from raysm.core.protocol.file_uri import path_of
from raysm.core.protocol.store import files_below, make_folder
from raysm.errors import InvalidInput, InvalidRequest
from raysm.local.job_spec import JobSpec

INPUT = "input"
"""The folder of the inputs below the base folder. ``relink`` skips it: it may have a million files,
and no outputs."""
SMALL_BYTES = 64 << 20
"""The largest channel that is copied: a disk writes it within a moment for several instances."""
SMALL_FILES = 1000


def relink(base: Path, inside: Path) -> None:
    """Change absolute links below ``base`` that use ``inside``, the instance's name of that folder, to use ``base``."""
    for at, folders, names in os.walk(base):
        if Path(at) == base:
            folders[:] = [name for name in folders if name != INPUT]
        for path in (Path(at, name) for name in (*folders, *names)):
            if not path.is_symlink():
                continue
            target = path.readlink()
            if target.is_relative_to(inside) and ".." not in target.parts:
                # A link that a container's root owns stays as it is.
                with contextlib.suppress(OSError):
                    path.unlink()
                    path.symlink_to(base / target.relative_to(inside))


@dataclass(frozen=True, slots=True)
class Entry:
    name: PurePosixPath
    """Relative to the base folder: ``input/data/matrix``, or ``input/data/matrix/part-1.npy``."""
    source: Path
    """Absolute, with links resolved."""
    owned: bool = False
    movable: bool = False
    """The source belongs to the job and may be moved."""


def local_path(channel: str, uri: str) -> Path:
    """Return the absolute path of ``uri`` on this machine; raise InvalidRequest if it is no local path."""
    scheme, has_scheme, rest = uri.partition("://")
    if uri.startswith("s3:"):
        raise InvalidRequest(
            f"channel {channel!r}: local instances cannot read {uri}; download it (aws s3 cp --recursive {uri} FOLDER)"
        )
    if has_scheme and scheme == "file":
        host = rest.partition("/")[0]
        if host not in ("", "localhost"):
            raise InvalidRequest(
                f"channel {channel!r}: {uri} names the host {host!r}; a path of this machine is file:///path"
            )
        return path_of(uri).absolute()
    if has_scheme:
        raise InvalidRequest(
            f"channel {channel!r}: {uri} is neither a path nor a file:// or s3:// URI"
        )
    # Without resolving it: a link keeps its own name in the channel.
    return Path(uri).expanduser().absolute()


def resolve(spec: JobSpec) -> dict[str, list[Entry]]:
    """Return the entries of each host; raise InvalidInput for a channel without readable files.

    A large channel is linked, and neither read nor copied. With ShardedByS3Key, object i of the
    keys in S3's order (by UTF-8 bytes) goes to host ``i % n``: AWS promises about 1/n for each and
    does not say which. A host with an empty share finds an empty folder.
    """
    entries: dict[str, list[Entry]] = {host: [] for host in spec.hosts}
    for channel in spec.channels:
        source, place, hosts = (
            _existing(channel.name, channel.source),
            spec.place_of(channel),
            spec.hosts_of(channel),
        )
        owned = channel.owned or is_small(source)
        if channel.distribution == "ShardedByS3Key":
            for index, (key, path) in enumerate(_objects(source)):
                entries[hosts[index % len(hosts)]].append(
                    Entry(place / key, path.resolve(), owned, channel.owned)
                )
            continue
        name = place if source.is_dir() else place / source.name
        for host in hosts:
            entries[host].append(Entry(name, source.resolve(), owned, channel.owned))
    return entries


def hand_over(
    entries: Mapping[str, list[Entry]], bases: Mapping[str, Path], *, leaves_out_empty: bool = False
) -> None:
    """Copy owned entries to their hosts; the last host of a movable source gets the source itself."""
    targets_of: dict[tuple[Path, bool], list[tuple[Path, Path]]] = {}
    for host, base in bases.items():
        for entry in entries[host]:
            if entry.owned:
                targets_of.setdefault((entry.source, entry.movable), []).append(
                    (base, base / entry.name)
                )
    for (source, movable), targets in targets_of.items():
        for number, (base, target) in enumerate(targets, start=1):
            # A list, because files are moved meanwhile.
            for below in [
                path for path in files_below(source) if path.stat().st_size or not leaves_out_empty
            ]:
                path = target / below.relative_to(source) if below != source else target
                make_folder(path.parent, within=base)
                if movable and number == len(targets):
                    shutil.move(below, path)
                else:
                    _copy(below, path)


def _copy(source: Path, target: Path) -> None:
    try:
        target.touch(mode=0o600)  # the token of a payload may be among them
        shutil.copy2(source, target)
    except PermissionError as error:
        raise InvalidInput(
            f"the input {source} cannot be read; change its permissions, or leave it out"
        ) from error


def is_small(source: Path) -> bool:
    size = 0
    for number, path in enumerate(files_below(source), start=1):
        size += path.stat().st_size
        if size > SMALL_BYTES or number > SMALL_FILES:
            return False
    return True


def _existing(channel: str, path: Path) -> Path:
    if not path.exists():
        raise InvalidInput(f"channel {channel!r}: {path} does not exist; check the path")
    if not path.is_dir() and not path.is_file():
        raise InvalidInput(f"channel {channel!r}: {path} is neither a file nor a folder")
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise InvalidInput(f"channel {channel!r}: {path} cannot be read; change its permissions")
    # SageMaker fails a job whose prefix has no object.
    if path.is_dir() and next(files_below(path), None) is None:
        raise InvalidInput(
            f"channel {channel!r}: the folder {path} has no files; give a folder with files"
        )
    return path


def _objects(source: Path) -> list[tuple[str, Path]]:
    if source.is_file():
        return [(source.name, source)]
    keys = [(path.relative_to(source).as_posix(), path) for path in files_below(source)]
    # By bytes, as S3 does; a file's name need not be UTF-8.
    return sorted(keys, key=lambda item: os.fsencode(item[0]))
