"""Choose the files of a channel that hold data, and not those that only describe a result.

This module needs neither Ray nor NumPy, so that a client without them sees its inputs as the job
will.
"""

from pathlib import Path, PurePath

from raysm.core.protocol import events, result
from raysm.core.protocol.result import VALUE, own_manifest
from raysm.core.protocol.store import files_below


def is_gzipped(name: str) -> bool:
    return name.lower().endswith(".gz")


def is_hidden(name: str) -> bool:
    """Return whether the file or a folder above it is hidden.

    Examples are ``.DS_Store``, ``_SUCCESS`` and ``_temporary/part``.
    """
    # Spark leaves _SUCCESS and hidden files with checksums beside its data.
    return any(part.startswith((".", "_")) for part in PurePath(name).parts)


def input_files(path: Path) -> list[tuple[str, Path]]:
    """List the files of an input as (name, path), sorted by path.

    The input may be another job's result. Then the files that raysm wrote beside its data are left
    out: the manifest, the trials of a sweep as JSON, the ids of a full matrix, and, if there are
    other files, a function's pickled value.

    Args:
        path: A folder, or the one file of the input.
    """
    if path.is_file():
        return [(path.name, path)]
    files = [(file.relative_to(path).as_posix(), file) for file in sorted(files_below(path))]
    files = [(name, file) for name, file in files if not _is_description(file)]
    others = [(name, file) for name, file in files if name != VALUE]
    return others if any(not is_hidden(name) for name, _ in others) else files


def data_files(path: Path) -> list[tuple[str, Path]]:
    return [
        (name, file) for name, file in input_files(path) if path.is_file() or not is_hidden(name)
    ]


def _is_description(file: Path) -> bool:
    # The content decides, because a user's data may have a file of that name.
    match file.name:
        case result.MARK:
            return True
        case result.MANIFEST:
            return own_manifest(file.parent) is not None
        case events.TRIALS:
            return events.own_trials(file.parent) is not None
        case result.IDS | result.QUERY_IDS:
            manifest = own_manifest(file.parent)
            return manifest is not None and file.name in [item.name for item in manifest.files]
    return False
