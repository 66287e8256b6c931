"""The working folder of a script with ``in_state``: $RAYSM_STATE, with a copy of the script's source.

The source is copied and not linked, because the service stores what a link leads to, and because a script that writes
over a file of its source would change the payload.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from raysm.bootstrap.environment import Environment
from raysm.contract.store import files_below, put, replacing, sha256_of
from raysm.errors import InvalidRequest

__all__ = ["RECORD", "copied_files", "fill_folders", "make_state_folder"]

RECORD = ".raysm-source.json"
"""In the state folder: the files of the source that were copied there, each with its SHA-256."""

CACHE = "__pycache__"


def make_state_folder(here: Environment, source: Path, say: Callable[[str], None]) -> Path:
    """Return the state folder of this instance, with the files of ``source`` in it.

    A copy that the script has not changed follows the source. Any other file stays as it is, also where the source has
    one of its name: it may be the checkpoint.

    Args:
        here: This instance.
        source: The payload's source.
        say: Takes a line for people: which files of the source are hidden by files of the state.

    Raises:
        InvalidRequest: The job has no checkpoints.
    """
    if not here.has_checkpoints:
        raise InvalidRequest("in_state needs a job with checkpoints: submit it with kind='training'")
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
            f"the state has files of its own that differ from the source's, and the script sees those of the state: "
            f"{', '.join(hidden)}"
        )
    return folder


def copied_files(folder: Path) -> dict[str, str]:
    """Return the files of the source that were copied into a state folder, by name, each with its SHA-256."""
    try:
        return dict(json.loads((folder / RECORD).read_text()))
    except FileNotFoundError:
        return {}


def fill_folders(args: Sequence[str], here: Environment) -> tuple[str, ...]:
    """Return arguments with ``{state}`` and ``{channel_NAME}`` replaced by the folders of this instance.

    Raises:
        InvalidRequest: An argument names the state of a job that has none.
    """
    folders = {f"{{channel_{name}}}": str(here.paths.channel(name)) for name in here.channels}
    if here.has_checkpoints:
        folders["{state}"] = str(here.paths.state(here.current_host))
    filled: list[str] = []
    for arg in args:
        for name, folder in folders.items():
            arg = arg.replace(name, folder)
        if "{state}" in arg:
            raise InvalidRequest(f"the argument {arg!r} names the state of a job that has no checkpoints")
        filled.append(arg)
    return tuple(filled)
