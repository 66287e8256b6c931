"""How a job ends: the manifest of a result, a Failure, and the record of the rows that share a job."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from raysm.contract.store import put, read_json
from raysm.errors import BlockFailed
from raysm.request.codec import from_json, to_json

MANIFEST = "manifest.json"
"""Name of the manifest in the result's folder; written last, so that its existence says that the result is whole."""

MARK = ".raysm"
"""Name of the file that tells a result that has no manifest, or is not whole yet, from a folder of the user's."""

VALUE = "result.pkl"
"""Name of a function's value, pickled by cloudpickle, in the result's folder."""

IDS = "ids.parquet"
QUERY_IDS = "query_ids.parquet"
"""Names of the ids of the rows and columns of a full similarity matrix, beside it."""

FAILURE = "raysm/failure.json"
"""Name of the whole ``Failure`` of a workload, among the other outputs: FailureReason is cut at 1024 characters."""

EXCEPTION = "raysm/exception.pkl"
"""Name of the exception that a function raised, pickled by cloudpickle, beside FAILURE; absent if it cannot be."""

MODEL_FILE = "model.safetensors"
"""Name of a trained model: ``model.load_state_dict(safetensors.torch.load_file(path))`` reads it."""

TRAINING = "training.json"
"""Name of what a training has measured of itself, a ``Measured``, beside the model."""

SERVICE_REASON = 1024
"""Characters of FailureReason, of which the failure file is a part."""

# SageMaker writes AlgorithmError: before it and the exit code behind it, and cuts the whole.
MAX_REASON = 950
"""Characters that raysm writes into the failure file: with what the service puts around it, all of them are kept."""


READERS = {
    ".parquet": 'import pyarrow.parquet as pq; table = pq.read_table("{}")',
    ".npy": 'import numpy; array = numpy.load("{}", mmap_mode="r")',
}
"""How a file is read whose name says what it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why user code ended otherwise than well."""

    error_type: str
    """The exception's class, ``ValueError``, or what else happened, ``SIGKILL``."""
    message: str
    """The exception's text."""
    remote_traceback: str = ""
    """As Python prints it; empty where there is none."""
    exit_code: int = 1
    """What the process exits with."""

    @property
    def headline(self) -> str:
        """Class and text of the exception; the class alone where it has no text."""
        return f"{self.error_type}: {self.message}".strip().removesuffix(":")

    def reason(self) -> str:
        """Return at most MAX_REASON characters: the exception first, then as much of the traceback's end as fits.

        The message of a task's error is a whole traceback, with the exception itself in its last line: where the
        message does not fit, that line comes first.
        """
        head = self.headline
        tail = self.remote_traceback.rstrip()
        if len(head) > MAX_REASON:
            head = self._first_line()
            # The message is itself the traceback then: what the line was taken out of still says where it happened.
            tail = tail or self.message.rstrip()
        if len(head) > MAX_REASON:
            return _cut(head, MAX_REASON)
        room = MAX_REASON - len(head) - 1
        if len(tail) > room:
            # Of a traceback the end is nearest to what went wrong.
            tail = "…" + tail[len(tail) - room + 1 :] if room > 1 else ""
        return f"{head}\n{tail}".rstrip()

    def _first_line(self) -> str:
        lines = [line.strip() for line in self.message.splitlines() if line.strip()]
        # Which block failed, and how often, is said nowhere but in the first line.
        # At most half of the room: the exception itself stands in the last line, which has to fit too.
        first = [_cut(lines[0], MAX_REASON // 2)] if self.error_type == BlockFailed.__name__ and len(lines) > 1 else []
        # A slice: a message of blanks alone has no last line.
        return " ".join([f"{self.error_type}:", *first, *lines[-1:]])

    def write(self, path: Path) -> None:
        """Write it as JSON, for ``read``."""
        put(path, json.dumps(to_json(self)))

    @staticmethod
    def read(path: Path) -> "Failure":
        """Read what ``write`` wrote."""
        return from_json(Failure, read_json(path), "failure")


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a training has measured of itself."""

    summary: str
    """What it waited for most, in one sentence."""
    measures: Mapping[str, float]
    """Figures, units in their names: ``steps_per_s``, ``data_s``."""

    def write(self, folder: Path) -> None:
        """Write it into the folder of the model."""
        put(folder / TRAINING, json.dumps(to_json(self), indent=1) + "\n")

    @staticmethod
    def read(folder: Path) -> "Measured":
        """Read what ``write`` wrote."""
        return from_json(Measured, read_json(folder / TRAINING), TRAINING)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultFile:
    """One file of a result."""

    name: str
    """Relative to the manifest."""
    shape: tuple[int, ...]
    """Top-k: rows and k. Pairs: their number. Full: rows and rows. Model: the number of its values. Of other files
    nothing is known."""
    bytes: int
    """Size of the file."""
    sha256: str
    """Digest of the file."""
    how_to_read: str
    """One line of Python; empty of a file that raysm does not know."""
    units: tuple[str, ...] = ()
    """What each length of the shape counts, for people: ``("rows", "neighbors")``."""

    @property
    def size(self) -> str:
        """Shape and bytes, for people: ``1,797 rows x 10 neighbors, 251,580 bytes``."""
        # Of files that raysm does not know there are neither lengths nor units.
        units = (*self.units, *[""] * (len(self.shape) - len(self.units)))
        lengths = [f"{length:,} {unit}".rstrip() for length, unit in zip(self.shape, units, strict=False)]
        return ", ".join(filter(None, [" x ".join(lengths), f"{self.bytes:,} bytes"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What was computed, from what, how, and how long it took."""

    job: str
    """The job's name."""
    workload: Mapping[str, Any]
    """The workload as JSON."""
    inputs: Mapping[str, Any]
    """By channel: digest, shape, type."""
    files: tuple[ResultFile, ...]
    """The result."""
    versions: Mapping[str, str]
    """Of raysm, Python, Ray, NumPy …"""
    instances: tuple[str, ...]
    """The hosts that took part."""
    phases_s: Mapping[str, float]
    """Seconds of each phase, in order."""
    engines: tuple[str, ...] = ()
    """What the similarity was computed with, on any instance: ``int8 AMX``; all give the same result."""
    notes: tuple[str, ...] = ()
    """What to know of how it was computed: why GPUs were not used, which instances were not."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Figures of the run, units in their names: ``peak_memory_bytes``; ``start_s`` is how long it took from the first
    program of the head's container to the workload on a formed cluster."""
    summary: str = ""
    """For people: of a training, where its time went."""

    def write(self, folder: Path) -> Path:
        """Write it into ``folder``, as the last file of the result."""
        path = folder / MANIFEST
        put(path, json.dumps(to_json(self), indent=1) + "\n")
        return path

    def as_dict(self) -> dict[str, Any]:
        """Return it as it stands in ``manifest.json``: dictionaries, lists, text and numbers."""
        content: dict[str, Any] = to_json(self)
        return content

    def __repr__(self) -> str:
        # Digests, versions and figures by the dozen are for as_dict(): this is what a notebook shows.
        kind = self.workload.get("kind", "workload")
        lines = [f"<manifest of {self.job}: {kind} on {', '.join(self.instances)}"]
        for file in self.files:
            lines.append(f"  {file.name}: {' x '.join(f'{length:,}' for length in file.shape)}, {file.bytes:,} bytes")
        phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.phases_s.items())
        lines += [f"  {text}" for text in (phases, self.summary) if text]
        return "\n".join(lines) + ">"

    @staticmethod
    def read(folder: Path) -> "Manifest":
        """Read the manifest in ``folder``."""
        return from_json(Manifest, read_json(folder / MANIFEST), "manifest")


def own_manifest(folder: Path) -> Manifest | None:
    """Return the manifest that raysm wrote into a folder; None if there is none, or a user's own file of that name."""
    path = folder / MANIFEST
    # A user's own can be a list of millions of files: raysm's begins with the job.
    try:
        with path.open("rb") as file:
            if not file.read(64).lstrip().startswith(b'{\n "job": '):
                return None
        return Manifest.read(folder)
    except (OSError, ValueError):
        return None


def described_file(name: str, size_bytes: int, sha256: str) -> ResultFile:
    """Return what the manifest says of a file of which only name, size and digest are known."""
    how_to_read = READERS.get(PurePath(name).suffix, "").format(name)
    return ResultFile(name=name, shape=(), bytes=size_bytes, sha256=sha256, how_to_read=how_to_read)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
