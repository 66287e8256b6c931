"""The folder of the user's into which a result is brought: never a mixture of two, and nothing of the user's is lost.

A manifest says that a result is whole, and whose it is. Until it is there, and where a job leaves none, a small file
beside the others does, with the names of all that was brought, so that the next result can take their places.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from raysm.client.records import task_of
from raysm.contract.result import MANIFEST, MARK, Manifest
from raysm.contract.store import put
from raysm.errors import InvalidConfig, InvalidRequest

__all__ = ["Earlier", "begin_result", "check_folder", "earlier_result", "finish_result", "manifest_of", "unmark"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Earlier:
    """A result that is there."""

    job: str
    """Name of its job."""
    names: frozenset[str]
    """Its files, relative to the folder; of a result that was interrupted, those of the one before it too."""


def manifest_of(folder: Path) -> Manifest | None:
    """Return the manifest in ``folder``; None where there is none, or one that is no result's of raysm."""
    try:
        return Manifest.read(folder)
    except (InvalidConfig, InvalidRequest):
        return None


def earlier_result(folder: Path) -> Earlier | None:
    """Return what result is in ``folder``; None where there is none."""
    # The mark first: what an interrupted one has brought stands nowhere else.
    if (folder / MARK).is_file():
        job, *names = (folder / MARK).read_text(encoding="utf-8").splitlines() or [""]
        return Earlier(job=job, names=frozenset(names))
    manifest = manifest_of(folder)
    if manifest is None:
        return None
    return Earlier(job=manifest.job, names=frozenset(file.name for file in manifest.files))


def check_folder(folder: Path, job: str | None = None) -> Earlier | None:
    """Refuse a folder that must not be written to: only a result of the same task may be replaced.

    Args:
        folder: Which; it need not be there.
        job: Whose result is to come; None: nobody knows yet.

    Returns:
        The result that would be replaced, None where there is none.

    Raises:
        InvalidRequest: ``folder`` is a file, or holds the result of another task, or something of the user's.
    """
    if folder.exists() and not folder.is_dir():
        raise InvalidRequest(f"the output {folder} is a file; name a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    earlier = earlier_result(folder)
    if earlier is None:
        raise InvalidRequest(f"the output {folder} holds files that are not a result of raysm; name another folder")
    if job is not None and task_of(earlier.job) != task_of(job):
        raise InvalidRequest(
            f"the output {folder} holds the result of {earlier.job}, another task than {task_of(job)!r}; name another "
            "folder, or remove that one"
        )
    return earlier


def begin_result(folder: Path, job: str, names: Iterable[str], earlier: Earlier | None) -> None:
    """Mark ``folder`` as one into which the files ``names`` are being brought: what is there is no whole result."""
    folder.mkdir(parents=True, exist_ok=True)
    # Before the manifest goes: whenever this is interrupted, something says what is in the folder.
    _mark(folder, job, {*names, *(earlier.names if earlier else ())})
    # A manifest.json of the script's own is a file of its result like others.
    if manifest_of(folder) is not None:
        (folder / MANIFEST).unlink()


def finish_result(folder: Path, job: str, names: Iterable[str], earlier: Earlier | None) -> None:
    """Remove what only the earlier result had; all ``names`` but a manifest are there."""
    present = set(names)
    for name in sorted((earlier.names if earlier else frozenset()) - present):
        # Whoever wrote that manifest must not have files elsewhere removed.
        if ".." not in PurePosixPath(name).parts and not PurePosixPath(name).is_absolute():
            (folder / name).unlink(missing_ok=True)
    _mark(folder, job, present)


def unmark(folder: Path) -> None:
    """Take the mark away where a manifest says what it said."""
    if manifest_of(folder) is not None:
        (folder / MARK).unlink(missing_ok=True)


def _mark(folder: Path, job: str, names: Iterable[str]) -> None:
    put(folder / MARK, "\n".join([job, *sorted(names)]) + "\n")
