"""The manifest of a checkpoint: a file that is written last.

It names every other file with its size and digest. No name is ever written twice, because the
service uploads files one by one and in its own time: a second file of the same name could be mixed
with the first, or removed in its place. This module does not use torch.
"""

import json
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from raysm.core.protocol.store import put, read_json, sha256_of
from raysm.core.request.codec import from_json, to_json
from raysm.errors import InvalidConfig, InvalidRequest
from raysm.features.training.cluster.loop.position import DataOrder

MANIFEST = "manifest.json"

Best: TypeAlias = tuple[str, Literal["min", "max"]]

FORMAT = 1
NAME = re.compile(r"step-\d{10,}-[0-9a-f]{8}")
FILE = re.compile(r"[A-Za-z0-9_.-]+")
"""Names of a checkpoint's files; other characters could make a path (``/``), or an invalid name
(NUL)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRecord:
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    step: int
    epoch: int
    offset: int
    workers: int
    layout: str
    """For example ``data=2 × pipeline=2``; equal if each rank has the same part."""
    run: str
    files: Mapping[str, FileRecord]
    order: DataOrder | None = None
    value: float | None = None
    metric: str | None = None
    reported: Mapping[str, float] = field(default_factory=dict)
    format: int = FORMAT
    time_s: float = field(default_factory=time.time)

    @property
    def name(self) -> str:
        return name_of(self.step, self.run)

    def value_of(self, metric: str) -> float | None:
        """Return this checkpoint's value of ``metric``.

        A checkpoint has a value of each metric that was reported, even if another metric chose the
        best when it was saved.
        """
        if self.metric in (None, metric):
            return self.value
        # Only ``value`` can be the step's own loss: a metric that was reported as "loss" may be
        # another one.
        return None if metric == "loss" else self.reported.get(metric)

    def write(self, folder: Path) -> None:
        # Last, and atomically: the manifest makes a checkpoint whole.
        put(folder / MANIFEST, json.dumps(to_json(self), indent=1) + "\n")


def name_of(step: int, run: str) -> str:
    return f"step-{step:010d}-{run}"


def step_of(name: str) -> int:
    return int(name.split("-")[1])


def parse_manifest(data: Any, where: str) -> Manifest:
    if isinstance(data, dict) and data.get("format", FORMAT) != FORMAT:
        raise InvalidConfig(
            f"{where} has format {data['format']!r}, this raysm reads {FORMAT}: use the one that "
            "wrote it"
        )
    try:
        manifest = from_json(Manifest, data, where)
    except InvalidRequest as error:
        raise InvalidConfig(str(error)) from error
    # The names become paths below the checkpoint's folder: a manifest that was tampered with must
    # not reach others.
    outside = [
        name for name in manifest.files if not FILE.fullmatch(name) or name in (".", "..", MANIFEST)
    ]
    if outside:
        raise InvalidConfig(
            f"{where}: {outside[0]!r} is not a valid name for a file of a checkpoint"
        )
    return manifest


def list_folders(checkpoints: Path) -> list[str]:
    return sorted(
        (path.name for path in checkpoints.iterdir() if NAME.fullmatch(path.name)), reverse=True
    )


def read_manifests(checkpoints: Path) -> dict[str, Manifest]:
    """Return the manifests by folder.

    A truncated manifest, of an upload that was stopped, is ignored.
    """
    manifests = {}
    for name in list_folders(checkpoints):
        path = checkpoints / name / MANIFEST
        try:
            data = read_json(path)
        except InvalidConfig:
            continue
        # Raises for another version's manifest: if it were skipped, its folder would be removed as
        # torn.
        manifest = parse_manifest(data, str(path))
        # A folder that was renamed or copied is ignored: it would be removed, or resumed from, as
        # another step.
        if manifest.name == name:
            manifests[name] = manifest
    return manifests


def is_intact(path: Path, record: FileRecord) -> bool:
    """Return whether a file is there and has the recorded content.

    Raises:
        OSError: The file cannot be read, which says nothing about its content.
    """
    try:
        # The size first: most torn files are too short, and a digest reads them whole.
        return path.stat().st_size == record.bytes and sha256_of(path) == record.sha256
    except (FileNotFoundError, NotADirectoryError):
        return False


def choose_outdated(whole: Sequence[Manifest], keep: int, best: Best | None) -> list[str]:
    """Return the checkpoints that are neither among the ``keep`` newest nor the best.

    If several have the best value, the newest of them counts as the best.
    """
    # Sorted by step, then by time: two runs may have saved the same step, and training continued
    # from the later one.
    newest = sorted(whole, key=lambda manifest: (manifest.step, manifest.time_s), reverse=True)
    retained = {manifest.name for manifest in newest[:keep]}
    if best is not None:
        metric, direction = best
        sign = 1 if direction == "min" else -1
        rated = [
            (value, manifest)
            for manifest in newest
            if (value := manifest.value_of(metric)) is not None
        ]
        # min() keeps the first of equals, and newest comes first.
        best_rated = min(rated, key=lambda item: sign * item[0], default=None)
        retained |= set() if best_rated is None else {best_rated[1].name}
    return [manifest.name for manifest in newest if manifest.name not in retained]


def remove(checkpoints: Path, names: Iterable[str]) -> None:
    for name in names:
        # The manifest first: what is left of an interrupted removal must not look whole.
        (checkpoints / name / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(checkpoints / name, ignore_errors=True)
