"""Keep instances' outputs from overwriting each other; warn of files that would be lost.

SageMaker uploads the model and output folders of all instances to one prefix; "if multiple
containers in a single training job write to this directory they should ensure no file/directory
names clash"
(https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-output.html). The
last writer of a name wins. Therefore each worker asks the head at its end which of its file names
another instance has already. It removes these files from its model folder, and moves those of its
output folder into a subfolder with its host name. Files that only one instance has, such as the
shards of a checkpoint, stay where they are.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from raysm.core.protocol.names import STATE, listed
from raysm.core.protocol.paths import Paths
from raysm.core.protocol.result import MANIFEST, ResultFile, own_manifest
from raysm.instance.instance import Instance

PIECE = 200
"""Maximum number of keys in one message, which has at most 8 KiB."""
MAX_NAMED = 5


class Owners:
    """The owner of each output file: the head, or the first instance that claims it."""

    def __init__(self, head: str, keys: Iterable[str]) -> None:
        self._owners = dict.fromkeys(keys, head)

    def claim(self, host: str, keys: Iterable[str]) -> list[str]:
        """Assign unowned keys to ``host``; return the keys that other instances own."""
        return [key for key in keys if self._owners.setdefault(key, host) != host]


def read_outputs(paths: Paths) -> dict[str, Path]:
    """Return the files that the service uploads from this instance, by the keys of their names."""
    files = {}
    # The key contains the folder's number, because the service uploads the two folders to separate
    # archives.
    for number, folder in enumerate((paths.model, paths.output_data)):
        for path in _files(folder):
            files[_key(number, os.fsencode(path.relative_to(folder)))] = path
    return files


def model_key(name: str) -> str:
    return _key(0, os.fsencode(name))


def complete_manifest(model: Path, files: Iterable[ResultFile]) -> None:
    """Add the workers' files to the head's manifest, unless it is the user's.

    Remove a manifest that lists no file.
    """
    manifest = own_manifest(model)
    if manifest is None:
        return
    names = {file.name for file in manifest.files}
    others = sorted((file for file in files if file.name not in names), key=lambda file: file.name)
    if others:
        replace(manifest, files=(*manifest.files, *others)).write(model)
    elif not manifest.files:
        (model / MANIFEST).unlink()


def _key(folder: int, name: bytes) -> str:
    # A digest, because a name as JSON may be longer than a line of the control channel.
    return hashlib.blake2b(b"%d/" % folder + name, digest_size=12).hexdigest()


def in_pieces(keys: Iterable[str]) -> Iterator[list[str]]:
    """Yield lists of keys that each fit into one message."""
    ordered = list(keys)
    for start in range(0, len(ordered), PIECE):
        yield ordered[start : start + PIECE]


def give_way(paths: Paths, host: str, files: Mapping[str, Path], keys: Iterable[str]) -> list[str]:
    """Remove or move files whose names other instances own; return messages about them.

    The names are ``keys`` of ``files``.
    """
    clashing = [files[key] for key in keys if key in files]
    left_out = [path for path in clashing if path.is_relative_to(paths.model)]
    moved = [path for path in clashing if not path.is_relative_to(paths.model)]
    for path in left_out:
        path.unlink(missing_ok=True)
    for path in moved:
        destination = paths.output_data / host / path.relative_to(paths.output_data)
        destination.parent.mkdir(parents=True, exist_ok=True)
        path.rename(destination)
    remarks = []
    if left_out:
        remarks.append(
            f"{host}: the result has {_named(left_out, paths.model)} from another instance, "
            "so this one's is left out; "
            "files whose names differ from instance to instance are all kept"
        )
    if moved:
        remarks.append(
            f"{host}: another instance has {_named(moved, paths.output_data)} too; "
            f"this one's is kept in {host}/"
        )
    return remarks


def _files(folder: Path) -> Iterator[Path]:
    for at, _, names in os.walk(folder):
        yield from (Path(at, name) for name in sorted(names))


def _named(files: Sequence[Path], folder: Path) -> str:
    return listed([path.relative_to(folder).as_posix() for path in files], MAX_NAMED)


CACHE = "__pycache__"


def warn_of_lost_files(instance: Instance, since_s: float) -> str | None:
    """Return a warning about files that the script left in its working folder.

    The warning names files that are newer than the instance's start.
    """
    workload = instance.request.workload
    paths = instance.environment.paths
    # With in_state the folder is a link to the state folder, which is kept.
    names = [] if paths.working.is_symlink() else list(_written_since(paths.working, since_s))
    if workload.entry_script is not None:
        names += _written_since(instance.payload.source, since_s)
    if not names:
        return None
    kept = ["results to $SM_MODEL_DIR"]
    if instance.environment.has_checkpoints:
        kept.append(f"checkpoints to ${STATE}")
    in_state = (
        "; or use --in-state"
        if hasattr(workload, "in_state") and instance.environment.has_checkpoints
        else ""
    )
    return (
        f"warning: files in the working folder of {instance.name} are lost now: "
        f"{listed(sorted(names), MAX_NAMED)}; write {' and '.join(kept)}{in_state}"
    )


def _written_since(folder: Path, since_s: float) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != CACHE]
        for name in files:
            path = Path(root, name)
            status = path.lstat()
            # A link leads to the source or to a channel, which are not lost.
            if stat.S_ISREG(status.st_mode) and status.st_mtime >= since_s:
                yield path.relative_to(folder).as_posix()
