"""Where workers run: a folder of each instance that shows the user's source and the job's channels by their names.

Ordinary scripts read ``data/`` and write ``checkpoint.pt`` relative to the folder in which they are started. The source
itself was verified and is not written to. What rank 0's workers leave in the folder is part of the job's result.
"""

import contextlib
import errno
import shutil
from collections.abc import Callable
from pathlib import Path

from raysm.bootstrap.environment import Environment
from raysm.contract.store import files_below, replacing, sha256_of
from raysm.workloads.disk import full_disk_is_no_room
from raysm.workloads.state_folder import RECORD, copied_files, make_state_folder

__all__ = ["link_state_folder", "make_folder", "save_outputs"]

NOT_KEPT = ("__pycache__",)


def make_folder(instance: Environment, source: Path) -> Path:
    """Return this instance's folder, made if it is not there; of source and channels, the first of a name is shown.

    What an earlier attempt of the same job left in it stays: a restarted script may go on with it.
    """
    folder = instance.paths.working
    folder.mkdir(parents=True, exist_ok=True)
    for path in [*sorted(source.iterdir()), *(instance.paths.channel(name) for name in instance.channels)]:
        link = folder / path.name
        # What is there stays; the other workers of this instance make the same links at the same moment.
        with contextlib.suppress(FileExistsError):
            link.symlink_to(path, target_is_directory=path.is_dir())
    return folder


def link_state_folder(instance: Environment, source: Path, say: Callable[[str], None]) -> Path:
    """Return the state folder of this instance, to which its working folder becomes a link."""
    state = make_state_folder(instance, source, say)
    instance.paths.working.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        instance.paths.working.symlink_to(state, target_is_directory=True)
    return state


def save_outputs(instance: Environment) -> list[str]:
    """Move what the workers left in the folder to this instance's model folder, and return the names.

    From a state folder it is copied, since the state keeps it too.
    Nothing that is in the model folder is overwritten.
    """
    folder, model = instance.paths.working, instance.paths.model
    if folder.is_symlink():
        return _copy_outputs(folder.resolve(), model)
    names: list[str] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        # A link is the source or a channel, which the job was given.
        if path.is_symlink() or path.name in NOT_KEPT or (model / path.name).exists():
            continue
        model.mkdir(parents=True, exist_ok=True)
        _move(path, model / path.name)
        names.append(path.name)
    return names


def _copy_outputs(state: Path, model: Path) -> list[str]:
    """Copy what the workers left in their state folder, which keeps it too."""
    copied = copied_files(state)
    names: set[str] = set()
    for path in files_below(state):
        name = path.relative_to(state)
        is_source = name.as_posix() in copied and copied[name.as_posix()] == sha256_of(path)
        if is_source or name.name == RECORD or set(name.parts) & set(NOT_KEPT) or (model / name).exists():
            continue
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        _copy(path, model / name)
        names.add(name.parts[0])
    return sorted(names)


def _move(path: Path, target: Path) -> None:
    """Move a file or folder; where the two are on different disks, as on SageMaker, each file is whole or absent.

    Raises:
        NoRoom: The disk became full.
    """
    try:
        path.rename(target)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    if path.is_dir():
        shutil.copytree(path, target, symlinks=True, copy_function=_copy)
        shutil.rmtree(path)
    else:
        _copy(path, target)
        path.unlink()


def _copy(path: str | Path, target: str | Path) -> None:
    with full_disk_is_no_room(Path(target)), replacing(Path(target)) as beside:
        shutil.copy2(path, beside)
