"""The end of a job: the manifest of its result, or its failure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from raysm.core.protocol.store import put, read_json
from raysm.core.request.codec import from_json, to_json
from raysm.errors import BlockFailed

MANIFEST = "manifest.json"
"""Name of the manifest in the result's folder; it is written last, so a result with a manifest is
complete."""
MARK = ".raysm"
"""Name of a file in the folder of an incomplete result, which a user's own folder does not have."""
VALUE = "result.pkl"
"""Name of a function's value, pickled by cloudpickle, in the result's folder."""
IDS = "ids.parquet"
QUERY_IDS = "query_ids.parquet"
"""Names of the ids of the rows and columns of a full similarity matrix, beside it."""
FAILURE = "raysm/failure.json"
"""Name of the whole ``Failure`` among the other outputs: SageMaker cuts FailureReason at 1024
characters."""
EXCEPTION = "raysm/exception.pkl"
"""Name of the exception that a function raised, pickled by cloudpickle, beside FAILURE; absent if
it cannot be."""
MODEL_FILE = "model.safetensors"
"""Name of a trained model: ``model.load_state_dict(safetensors.torch.load_file(path))`` reads
it."""
TRAINING = "training.json"
"""Name of a training's ``Measured``, beside the model."""
SERVICE_REASON = 1024
# SageMaker writes AlgorithmError: before it and the exit code after it, and cuts the whole.
MAX_REASON = 950
"""Characters of the failure file that fit into FailureReason."""

READERS = {
    ".parquet": 'import pyarrow.parquet as pq; table = pq.read_table("{}")',
    ".npy": 'import numpy; array = numpy.load("{}", mmap_mode="r")',
    ".safetensors": "import safetensors.torch; tensors = safetensors.torch.load_file('{}')",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """The failure of user code."""

    error_type: str
    """The exception's class, ``ValueError``, or a signal, ``SIGKILL``."""
    message: str
    remote_traceback: str = ""
    """As Python prints it; empty if there is none."""
    exit_code: int = 1

    @property
    def headline(self) -> str:
        return f"{self.error_type}: {self.message}".strip().removesuffix(":")

    def reason(self) -> str:
        """Return at most MAX_REASON characters: the exception, and the traceback's end.

        The exception comes first, then as much of the traceback's end as fits.

        A traceback that does not fit loses the frames of installed packages, because the user's own
        say more. The message of a task's error is a whole traceback, with the exception in its last
        line. If the message does not fit, that line comes first.
        """
        head = self.headline
        tail = self.remote_traceback.rstrip()
        if len(head) > MAX_REASON:
            head = self._first_line()
            tail = tail or self.message.rstrip()
        if len(head) > MAX_REASON:
            return _cut(head, MAX_REASON)
        room = MAX_REASON - len(head) - 1
        if len(tail) > room:
            tail = without_frames(tail, PACKAGE)
        if len(tail) > room:
            tail = "…" + tail[len(tail) - room + 1 :] if room > 1 else ""
        return f"{head}\n{tail}".rstrip()

    def _first_line(self) -> str:
        lines = [line.strip() for line in self.message.splitlines() if line.strip()]
        # Only the first line says which block failed. At most half of the room: the last line has
        # the exception.
        first = (
            [_cut(lines[0], MAX_REASON // 2)]
            if self.error_type == BlockFailed.__name__ and len(lines) > 1
            else []
        )
        # A slice: a message of blanks alone has no last line.
        return " ".join([f"{self.error_type}:", *first, *lines[-1:]])

    def write(self, path: Path) -> None:
        put(path, json.dumps(to_json(self)))

    @staticmethod
    def read(path: Path) -> "Failure":
        return from_json(Failure, read_json(path), "failure")


FRAME = '  File "'
PACKAGE = re.compile(r".*/(site|dist)-packages/")


def without_frames(traceback: str, dropped: re.Pattern[str]) -> str:
    """Return a traceback without the frames whose first line matches.

    If there are no others, return the whole traceback.
    """
    kept: list[str] = []
    is_dropped = False
    for line in traceback.splitlines():
        if line.startswith(FRAME):
            is_dropped = dropped.match(line) is not None
        elif not line.startswith("    "):
            is_dropped = False
        if not is_dropped:
            kept.append(line)
    return "\n".join(kept) if any(line.startswith(FRAME) for line in kept) else traceback


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Measurements of a training."""

    summary: str
    """One sentence about what the training waited for most."""
    measures: Mapping[str, float]
    """Figures, with units in their names: ``steps_per_s``, ``data_s``."""

    def write(self, folder: Path) -> None:
        put(folder / TRAINING, json.dumps(to_json(self), indent=1) + "\n")

    @staticmethod
    def read(folder: Path) -> "Measured":
        return from_json(Measured, read_json(folder / TRAINING), TRAINING)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultFile:
    """One file of a result."""

    name: str
    """Path relative to the manifest."""
    shape: tuple[int, ...]
    """Top-k: rows and k. Pairs: their number. Full: rows and rows. Other files: ()."""
    bytes: int
    sha256: str
    how_to_read: str
    """One line of Python; empty if raysm does not know the file. Readers of a manifest derive it
    from the name."""
    units: tuple[str, ...] = ()
    """The unit of each length of the shape: ``("rows", "neighbors")``."""

    @property
    def size(self) -> str:
        """Shape and bytes as text: ``1,797 rows x 10 neighbors, 251,580 bytes``."""
        units = (*self.units, *[""] * (len(self.shape) - len(self.units)))
        lengths = [
            f"{length:,} {unit}".rstrip() for length, unit in zip(self.shape, units, strict=False)
        ]
        return ", ".join(filter(None, [" x ".join(lengths), f"{self.bytes:,} bytes"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """A result: its files, the inputs and versions it was computed from, and how long it took."""

    job: str
    """The job's name."""
    workload: Mapping[str, Any]
    """The workload as JSON."""
    inputs: Mapping[str, Any]
    """Digest, shape and type by channel."""
    files: tuple[ResultFile, ...]
    versions: Mapping[str, str]
    """Versions of raysm, Python, Ray, NumPy …"""
    instances: tuple[str, ...]
    """The hosts that took part."""
    phases_s: Mapping[str, float]
    """Seconds of each phase, in order."""
    engines: tuple[str, ...] = ()
    """Engines of a similarity on any instance: ``int8 AMX``; all give the same result."""
    notes: tuple[str, ...] = ()
    """Messages about the run: why GPUs or instances were not used."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Figures of the run, with units in their names: ``peak_memory_bytes``; ``start_s`` is the time
    from the first program of the head's container to the workload on a formed cluster."""
    summary: str = ""
    """For a training: where its time went."""

    def write(self, folder: Path) -> Path:
        path = folder / MANIFEST
        put(path, json.dumps(to_json(self), indent=1) + "\n")
        return path

    def as_dict(self) -> dict[str, Any]:
        """Return the content of ``manifest.json``: dictionaries, lists, text and numbers."""
        content: dict[str, Any] = to_json(self)
        return content

    def __repr__(self) -> str:
        # Short, as a notebook shows it; as_dict() has everything.
        kind = self.workload.get("kind", "workload")
        lines = [f"<manifest of {self.job}: {kind} on {', '.join(self.instances)}"]
        for file in self.files:
            lines.append(f"  {file.name}: {file.size}")
        phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.phases_s.items())
        lines += [f"  {text}" for text in (phases, self.summary) if text]
        return "\n".join(lines) + ">"

    @staticmethod
    def read(folder: Path) -> "Manifest":
        return from_json(Manifest, read_json(folder / MANIFEST), "manifest")


def own_manifest(folder: Path) -> Manifest | None:
    """Return the manifest that raysm wrote into a folder, or None.

    None means that there is none, or a user's own file of that name.
    """
    path = folder / MANIFEST
    # The first bytes are checked, because a user's own file can be large.
    try:
        with path.open("rb") as file:
            if not file.read(64).lstrip().startswith(b'{\n "job": '):
                return None
        return Manifest.read(folder)
    except (OSError, ValueError):
        return None


def described_file(name: str, size_bytes: int, sha256: str) -> ResultFile:
    return ResultFile(
        name=name, shape=(), bytes=size_bytes, sha256=sha256, how_to_read=how_to_read(name)
    )


def how_to_read(path: str, suffix: str | None = None) -> str:
    """Return a line of Python that reads a file, or files that end with ``suffix``.

    The files are in one folder. The line is empty if unknown.
    """
    template = READERS.get(PurePath(path).suffix if suffix is None else suffix, "")
    # Users paste the line: a name must not end the string, or hide a part of it.
    if path.isprintable() and not set("\"'\\") & set(path):
        return template.format(path)
    return re.sub(r"""["']\{\}["']""", lambda match: repr(path), template)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
