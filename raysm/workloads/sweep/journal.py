"""What is known of each trial, on the head's disk, so that an interrupted sweep goes on where it stopped.

A small file a trial, among the job's checkpoints where it has any, and the checkpoints of the trials beside them. A
folder that travels (checkpoints go to S3 and come back) may have been torn on the way: what a file says is believed
only of a checkpoint whose files have the digests that it names. Nothing of Ray's own state is read: it is pickled.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from raysm.contract.events import Trial
from raysm.contract.store import put, read_json, sha256_of
from raysm.errors import InvalidConfig, InvalidRequest
from raysm.request.codec import from_json, to_json
from raysm.request.sweep import SweepWorkload

__all__ = ["Entry", "Journal", "key_of"]

SPENT = "spent.json"
"""Name of the file that says how many seconds the sweep has run."""

DECISIVE = ("space", "metric", "mode", "search", "seed")
"""Fields of a sweep whose trials another one with the same may go on with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One trial."""

    trial: Trial
    """How it is."""
    checkpoint: str | None = None
    """Path, among the head's files, of what it goes on from."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of that folder's files by their names."""
    traceback: str = ""
    """Of a failed one."""


@dataclass(frozen=True, slots=True)
class _Spent:
    """How long a sweep has run."""

    seconds: float


class Journal:
    """The entries of one sweep, by the numbers of its trials.

    Attributes:
        files: Folder of the trials' checkpoints.
    """

    def __init__(self, root: Path, key: str) -> None:
        """Open what is in ``root`` of the sweep ``key``, or begin it; what another sweep has left there is removed."""
        self._folder = root / key
        # Checkpoints of a sweep with another space would be brought back, and paid for, with every start.
        for other in root.iterdir() if root.is_dir() else ():
            if other != self._folder and other.is_dir():
                shutil.rmtree(other, ignore_errors=True)
        self.files = self._folder / "files"
        self.files.mkdir(parents=True, exist_ok=True)

    def entries(self) -> list[Entry]:
        """Return what is known, by the numbers; a torn file is as if it were not there."""
        read = [self._read(path) for path in sorted((self._folder / "trials").glob("*.json"))]
        return [entry for entry in read if entry is not None]

    def write(self, trial: Trial, checkpoint: str | None = None, traceback: str = "") -> Entry:
        """Keep how a trial is, and which checkpoint it goes on from; return both."""
        digests = {} if checkpoint is None else dict(self._digests(checkpoint))
        entry = Entry(trial=trial, checkpoint=checkpoint, digests=digests, traceback=traceback)
        # A file each, written beside and renamed: a journal of one file would be torn as a whole.
        put(self._folder / "trials" / f"{trial.number:06}.json", json.dumps(to_json(entry)))
        return entry

    def spent_s(self) -> float:
        """Return how long the sweep has run; 0 where that was not written down."""
        try:
            return from_json(_Spent, read_json(self._folder / SPENT), SPENT).seconds
        except (InvalidConfig, InvalidRequest):
            return 0.0

    def keep_spent(self, seconds: float) -> None:
        """Write down how long the sweep has run, over all of its runs."""
        put(self._folder / SPENT, json.dumps(to_json(_Spent(seconds))))

    def folder_of(self, checkpoint: str) -> Path:
        """Return where a checkpoint lies."""
        return self.files / checkpoint.lstrip("/")

    def remove_checkpoint(self, checkpoint: str) -> None:
        """Remove a checkpoint that nobody needs any more."""
        shutil.rmtree(self.folder_of(checkpoint), ignore_errors=True)

    def remove_checkpoints(self, checkpoint: str) -> None:
        """Remove a checkpoint, with the older ones of its trial."""
        shutil.rmtree(self.folder_of(checkpoint).parent, ignore_errors=True)

    def remove(self) -> None:
        """Remove all of it: what counts is in the result."""
        shutil.rmtree(self._folder, ignore_errors=True)
        # The folder above may be of the job's other state.
        with contextlib.suppress(OSError):
            self._folder.parent.rmdir()

    def _digests(self, checkpoint: str) -> Iterator[tuple[str, str]]:
        folder = self.folder_of(checkpoint)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                yield path.relative_to(folder).as_posix(), sha256_of(path)

    def _read(self, path: Path) -> Entry | None:
        try:
            entry = from_json(Entry, read_json(path), "trial")
        # Torn, or of another version: the trial is run anew.
        except (InvalidConfig, InvalidRequest):
            return None
        whole = entry.checkpoint is None or dict(self._digests(entry.checkpoint)) == dict(entry.digests)
        # From the beginning: slower than from a checkpoint, and never from half of one.
        return entry if whole else Entry(trial=entry.trial, traceback=entry.traceback)


def key_of(workload: SweepWorkload) -> str:
    """Return what a sweep's trials depend on, as the name of a folder."""
    # The title too: another function over the same space has nothing to go on from.
    content = {name: to_json(getattr(workload, name)) for name in DECISIVE} | {"title": workload.title}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
