"""The working folders of programs: that of a script, and that of training workers.

With ``in_state``, a script's folder is the state folder.
"""

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from raysm.core.protocol.names import listed
from raysm.core.protocol.result import MANIFEST
from raysm.core.protocol.store import files_below, put, replacing, sha256_of
from raysm.errors import InvalidRequest
from raysm.instance.environment import Environment
from raysm.instance.work.disk import full_disk_is_no_room

RECORD = ".raysm-source.json"
"""File in the state folder that lists the files that were copied from the source, each with its
SHA-256."""

CACHE = "__pycache__"

MAX_KEPT_BYTES = 1 << 30
MAX_KEPT_FILES = 10_000
"""Limits of what a script leaves in its working folder: above them, it did not mean all of it as
its result."""
MAX_NAMED = 5


def make_state_folder(here: Environment, source: Path, say: Callable[[str], None]) -> Path:
    """Return the state folder of this instance, with the files of ``source`` in it.

    A file that came from the source, and that the script has not changed, is updated or removed
    with the source. Any other file stays, because it may be a checkpoint. ``say`` receives a line
    that names the files of the source that such files hide.
    """
    if not here.has_checkpoints:
        raise InvalidRequest(
            "in_state needs a job with checkpoints: submit it with kind='training'"
        )
    folder = here.paths.state(here.current_host)
    folder.mkdir(parents=True, exist_ok=True)
    before = copied_files(folder)
    files = {
        path.relative_to(source).as_posix(): path
        for path in files_below(source)
        if CACHE not in path.relative_to(source).parts
    }
    after: dict[str, str] = {}
    hidden: list[str] = []
    for name in sorted(before.keys() | files.keys()):
        target = folder / name
        wanted = sha256_of(files[name]) if name in files else None
        present = sha256_of(target) if target.is_file() else None
        if present is None and target.exists():
            hidden.append(name)
        elif present is not None and present not in (wanted, before.get(name)):
            if wanted is not None:
                hidden.append(name)
        elif wanted is None:
            target.unlink(missing_ok=True)
        else:
            after[name] = wanted
            if present != wanted:
                with replacing(target) as beside:
                    shutil.copy(files[name], beside)
    put(folder / RECORD, json.dumps(after, indent=1).encode())
    if hidden:
        say(
            "the script sees the state's files, "
            f"which differ from the source's: {', '.join(hidden)}"
        )
    return folder


def copied_files(folder: Path) -> dict[str, str]:
    """Return the files of a state folder that came from the source, with their SHA-256.

    There are none if there is no record.
    """
    try:
        read = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError, RecursionError):  # it does not exist, or is not what raysm wrote
        return {}
    # It comes back from a bucket: its names must not lead to files elsewhere, which could be
    # removed.
    return {
        name: digest
        for name, digest in (read.items() if isinstance(read, dict) else ())
        if not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts
    }


def fill_folders(args: Sequence[str], here: Environment) -> tuple[str, ...]:
    """Replace ``{state}`` and ``{channel_NAME}`` in arguments by the folders of this instance."""
    folders = {f"{{channel_{name}}}": str(here.paths.channel(name)) for name in here.channels}
    if here.has_checkpoints:
        folders["{state}"] = str(here.paths.state(here.current_host))
    filled: list[str] = []
    for arg in args:
        for name, folder in folders.items():
            arg = arg.replace(name, folder)
        if "{state}" in arg:
            raise InvalidRequest(
                f"the argument {arg!r} names the state of a job that has no checkpoints"
            )
        filled.append(arg)
    return tuple(filled)


def make_folder(instance: Environment, source: Path) -> Path:
    """Create this instance's working folder, and return it.

    The folder has links to the source's files and the channels.

    Files of an earlier attempt stay, so that a restarted script may continue with them.
    """
    folder = instance.paths.working
    folder.mkdir(parents=True, exist_ok=True)
    for path in [
        *sorted(source.iterdir()),
        *(instance.paths.channel(name) for name in instance.channels),
    ]:
        link = folder / path.name
        # Existing files stay; the other workers of this instance make the same links at the same
        # time.
        with contextlib.suppress(FileExistsError):
            link.symlink_to(path, target_is_directory=path.is_dir())
    return folder


def link_state_folder(instance: Environment, source: Path, say: Callable[[str], None]) -> Path:
    state = make_state_folder(instance, source, say)
    instance.paths.working.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        instance.paths.working.symlink_to(state, target_is_directory=True)
    return state


def save_outputs(instance: Environment) -> list[str]:
    """Move the workers' files into the model folder, and return their names.

    Files of a state folder are copied instead.
    """
    folder = instance.paths.working
    model = instance.paths.model
    if folder.is_symlink():
        return _copy_outputs(folder.resolve(), model)
    names: list[str] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        # A link leads to the source or a channel.
        if path.is_symlink() or path.name == CACHE or (model / path.name).exists():
            continue
        model.mkdir(parents=True, exist_ok=True)
        # Across disks, as on SageMaker, each file is whole or absent.
        shutil.move(path, model / path.name, copy_function=_copy)
        names.append(path.name)
    return names


def _copy_outputs(state: Path, model: Path) -> list[str]:
    copied = copied_files(state)
    names: set[str] = set()
    for path in files_below(state):
        name = path.relative_to(state)
        is_source = name.as_posix() in copied and copied[name.as_posix()] == sha256_of(path)
        if is_source or name.name == RECORD or CACHE in name.parts or (model / name).exists():
            continue
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        _copy(path, model / name)
        names.add(name.parts[0])
    return sorted(names)


def keep_new_files(
    folder: Path, source: Mapping[str, str], model: Path, say: Callable[[str], None]
) -> None:
    """Move a script's new files from its working folder into the model folder, and name them.

    Links, caches, and files whose name the model folder has already stay where they are. If there
    is more than ``MAX_KEPT_BYTES`` or ``MAX_KEPT_FILES``, all stay.

    Args:
        folder: The working folder, which has the script's source.
        source: SHA-256 of each file of the source, by its name in ``folder``.
        model: The model folder.
        say: Takes a line for the log.
    """
    sizes = {name: size for name, size in _new_files(folder, source) if not (model / name).exists()}
    if not sizes:
        return
    total = sum(sizes.values())
    if total > MAX_KEPT_BYTES or len(sizes) > MAX_KEPT_FILES:
        say(
            f"the script left {len(sizes):,} files of {total / 1e6:,.0f} MB in its working "
            f"folder, more than the {MAX_KEPT_FILES:,} files or {MAX_KEPT_BYTES / 1e6:,.0f} "
            "MB that are kept of it; write results to $SM_MODEL_DIR"
        )
        return
    for name in sizes:
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        # Across disks each file is whole or absent.
        shutil.move(folder / name, model / name, copy_function=_copy)
    shown = list(
        dict.fromkeys(f"{name.partition('/')[0]}/" if "/" in name else name for name in sizes)
    )
    say(
        "the result also has the files that the script left in its working folder: "
        f"{listed(shown, MAX_NAMED)} (--drop-files does not keep them, "
        "--in-state keeps them for --resume)"
    )


def _new_files(folder: Path, source: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != CACHE)
        for path in (Path(at, name) for name in sorted(names)):
            name = path.relative_to(folder).as_posix()
            status = path.lstat()
            # raysm writes a manifest of its own into the model folder.
            if not stat.S_ISREG(status.st_mode) or name == MANIFEST:
                continue
            # By the content: copies keep an old time of modification, and the clock may have been
            # set.
            if name not in source or sha256_of(path) != source[name]:
                yield name, status.st_size


def _copy(path: str | Path, target: str | Path) -> None:
    with full_disk_is_no_room(Path(target)), replacing(Path(target)) as beside:
        shutil.copy2(path, beside)


PIECE_BYTES = 8 << 20
UNDER_WAY = 4
"""Maximum number of pieces that travel at a time."""


def read_pieces(folder: Path, only: Collection[str] | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield ``(name, bytes)`` of files below ``folder``, in order; an empty piece ends each.

    ``only`` has the names of the files to read; None reads all.
    """
    # Files behind a link to a folder too, which the service uploads if rank 0 is on the head.
    for path in sorted(files_below(folder)):
        name = path.relative_to(folder).as_posix()
        if only is not None and name not in only:
            continue
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield name, piece
        # Without this piece, an empty file would be missing.
        yield name, b""


def write_pieces(pieces: Iterator[tuple[str, bytes]], to: Path) -> None:
    """Write what ``read_pieces`` yielded below ``to``; a file gets its name once it is complete."""
    for name, piece in pieces:
        with replacing(to / name) as beside:
            with beside.open("wb") as file:
                while piece:
                    file.write(piece)
                    _, piece = next(pieces)
