"""The manifest of a checkpoint: a file, written last, that names every other file with its size and digest.

A checkpoint is a folder ``step-0000000150-3f9a12cd`` among the job's checkpoints: the step after which it was made, and
the run that made it. No name is ever written twice, because the service uploads files one by one and in its own time: a
second file of the same name could be mixed with the first, or removed in its place. This module does not use torch.
"""

import contextlib
import json
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from raysm.contract.store import put, read_json, sha256_of
from raysm.errors import InvalidConfig, InvalidRequest
from raysm.request.codec import from_json, to_json
from raysm.workloads.training.loop.position import DataOrder

MANIFEST = "manifest.json"

Best: TypeAlias = tuple[str, Literal["min", "max"]]

FORMAT = 1

NAME = re.compile(r"step-\d{10,}-[0-9a-f]{8}")

FILE = re.compile(r"[A-Za-z0-9_.-]+")
"""Names of a checkpoint's files; other characters could make a path (``/``), or an invalid name (NUL)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRecord:
    """One file of a checkpoint."""

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """One whole checkpoint."""

    step: int
    epoch: int
    """The epoch in which training resumes, from 0."""
    offset: int
    """Samples of that epoch from which all workers together have learned."""
    workers: int
    layout: str
    """For example ``data=2 × pipeline=2``; equal if each rank has the same part."""
    run: str
    """Eight random hex digits, new for every start of the workers."""
    files: Mapping[str, FileRecord]
    order: DataOrder | None = None
    """None if the batches are the user's own."""
    value: float | None = None
    """Value of ``metric``, by which the best checkpoint is kept."""
    metric: str | None = None
    reported: Mapping[str, float] = field(default_factory=dict)
    """The metrics that rank 0 had reported last, if finite."""
    format: int = FORMAT
    time_s: float = field(default_factory=time.time)
    """When it was written, in seconds since the epoch."""

    @property
    def name(self) -> str:
        return name_of(self.step, self.run)

    def value_of(self, metric: str) -> float | None:
        """Return this checkpoint's value of ``metric``, even if another metric chose the best when it was saved."""
        if self.metric in (None, metric):
            return self.value
        # Only ``value`` can be the step's own loss: a metric that was reported as "loss" may be another one.
        return None if metric == "loss" else self.reported.get(metric)

    def write(self, folder: Path) -> None:
        # Last, and atomically: the manifest makes a checkpoint whole.
        put(folder / MANIFEST, json.dumps(to_json(self), indent=1) + "\n")


def name_of(step: int, run: str) -> str:
    return f"step-{step:010d}-{run}"


def parse_manifest(data: Any, where: str) -> Manifest:
    """Return the manifest in ``data``, JSON values; raise InvalidConfig if it is not one, or has another format."""
    if isinstance(data, dict) and data.get("format", FORMAT) != FORMAT:
        raise InvalidConfig(
            f"{where} has format {data['format']!r}, this raysm reads {FORMAT}: use the one that wrote it"
        )
    try:
        manifest = from_json(Manifest, data, where)
    except InvalidRequest as error:
        raise InvalidConfig(str(error)) from error
    # The names become paths below the checkpoint's folder: a manifest that was tampered with must not reach others.
    outside = [name for name in manifest.files if not FILE.fullmatch(name) or name in (".", "..", MANIFEST)]
    if outside:
        raise InvalidConfig(f"{where}: {outside[0]!r} is not a valid name for a file of a checkpoint")
    return manifest


def list_folders(checkpoints: Path) -> list[str]:
    """Return the names of all checkpoints, torn ones too, the newest first."""
    with contextlib.suppress(FileNotFoundError):
        return sorted((path.name for path in checkpoints.iterdir() if NAME.fullmatch(path.name)), reverse=True)
    return []


def read_manifests(checkpoints: Path) -> dict[str, Manifest]:
    """Return the manifests below ``checkpoints`` by folder, whether their files are there or not.

    A truncated manifest is ignored: the service may have been stopped while it uploaded it.
    """
    manifests = {}
    for name in list_folders(checkpoints):
        path = checkpoints / name / MANIFEST
        try:
            data = read_json(path)
        except InvalidConfig:
            continue
        # Raises for another version's manifest: if it were skipped, its folder would be removed as torn.
        manifest = parse_manifest(data, str(path))
        # A folder that was renamed or copied is ignored: it would be removed, or resumed from, as another step.
        if manifest.name == name:
            manifests[name] = manifest
    return manifests


def is_intact(path: Path, record: FileRecord) -> bool:
    """Return whether the file has the size and the digest that were recorded."""
    try:
        # The size first: most torn files are too short, and a digest reads them whole.
        return path.stat().st_size == record.bytes and sha256_of(path) == record.sha256
    except OSError:
        return False


def choose_outdated(whole: Sequence[Manifest], keep: int, best: Best | None) -> list[str]:
    """Return the names of the checkpoints that are neither among the ``keep`` newest nor the best.

    If several have the same value, the newest is the best; one without a value is never the best.
    """
    # Sorted by step, then by time: two runs may have saved the same step, and training continued from the later one.
    newest = sorted(whole, key=lambda manifest: (manifest.step, manifest.time_s), reverse=True)
    retained = {manifest.name for manifest in newest[:keep]}
    if best is not None:
        metric, direction = best
        sign = 1 if direction == "min" else -1
        rated = [(value, manifest) for manifest in newest if (value := manifest.value_of(metric)) is not None]
        # min() keeps the first of equals, and newest comes first.
        best_rated = min(rated, key=lambda item: sign * item[0], default=None)
        retained |= set() if best_rated is None else {best_rated[1].name}
    return [manifest.name for manifest in newest if manifest.name not in retained]


def remove(checkpoints: Path, names: Iterable[str]) -> None:
    """Remove checkpoints; some may be missing, and another process may remove them too."""
    for name in names:
        # The manifest first: what is left of an interrupted removal must not look whole.
        (checkpoints / name / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(checkpoints / name, ignore_errors=True)
