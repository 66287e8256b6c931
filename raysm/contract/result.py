"""How a job ends: the manifest beside a result, or a Failure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raysm.contract.store import put, read_json
from raysm.request.codec import from_json, to_json

__all__ = ["EXCEPTION", "FAILURE", "Failure", "MANIFEST", "MAX_REASON", "Manifest", "ResultFile", "VALUE"]

MANIFEST = "manifest.json"
"""Name of the manifest in the result's folder; written last, so that its existence says that the result is whole."""

VALUE = "result.pkl"
"""Name of a function's value, pickled by cloudpickle, in the result's folder."""

FAILURE = "raysm/failure.json"
"""Name of the whole ``Failure`` of a workload, among the other outputs: FailureReason is cut at 1024 characters."""

EXCEPTION = "raysm/exception.pkl"
"""Name of the exception that a function raised, pickled by cloudpickle, beside FAILURE; absent if it cannot be."""

MAX_REASON = 1024
"""Characters of the failure file that SageMaker keeps as FailureReason."""


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

    def reason(self) -> str:
        """Return at most 1024 characters: the exception first, then as much of the traceback's end as fits."""
        head = f"{self.error_type}: {self.message}".strip().removesuffix(":")
        if len(head) > MAX_REASON:
            return head[: MAX_REASON - 1] + "…"
        room = MAX_REASON - len(head) - 1
        tail = self.remote_traceback.rstrip()
        if len(tail) > room:
            tail = "…" + tail[len(tail) - room + 1 :] if room > 1 else ""
        return f"{head}\n{tail}".rstrip()

    def write(self, path: Path) -> None:
        """Write it as JSON, for ``read``."""
        put(path, json.dumps(to_json(self)))

    @staticmethod
    def read(path: Path) -> "Failure":
        """Read what ``write`` wrote."""
        return from_json(Failure, read_json(path), "failure")


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultFile:
    """One file of a result."""

    name: str
    """Relative to the manifest."""
    shape: tuple[int, ...]
    """Top-k: rows and k. Pairs: their number. Full: rows and rows."""
    bytes: int
    """Size of the file."""
    sha256: str
    """Digest of the file."""
    how_to_read: str
    """One line of Python."""


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
    measures: Mapping[str, float] = field(default_factory=dict)
    """Figures of the run, units in their names: ``peak_memory_bytes``."""

    def write(self, folder: Path) -> Path:
        """Write it into ``folder``, as the last file of the result."""
        path = folder / MANIFEST
        put(path, json.dumps(to_json(self), indent=1) + "\n")
        return path

    @staticmethod
    def read(folder: Path) -> "Manifest":
        """Read the manifest in ``folder``."""
        return from_json(Manifest, read_json(folder / MANIFEST), "manifest")
