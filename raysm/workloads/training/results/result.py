"""What a training leaves: rank 0's model, how large it is and how it is read, and where the time went."""

import json
import math
from pathlib import Path

from raysm.contract.result import MODEL_FILE, TRAINING, Manifest, Measured, ResultFile
from raysm.contract.store import sha256_of
from raysm.request import JobRequest
from raysm.workloads import left_files

__all__ = ["write_manifest"]


def write_manifest(request: JobRequest, model: Path, hosts: tuple[str, ...], training_s: float) -> Manifest | None:
    """Write the manifest into the folder ``model``, as the last file of the result; None where nothing was left.

    Args:
        request: What was asked for.
        model: Rank 0's model folder, on the head.
        hosts: The instances that trained.
        training_s: From the first worker's start to the last one's end, seconds, restarts included.
    """
    # A script that does not use raysm.training leaves none.
    measured = Measured.read(model) if (model / TRAINING).is_file() else Measured(summary="", measures={})
    return left_files.write_manifest(
        request,
        model,
        instances=hosts,
        phases_s={"training": training_s},
        # What a model can be read with again; other packages are the user's.
        packages=("torch",),
        described=(_model(model / MODEL_FILE),) if (model / MODEL_FILE).is_file() else (),
        measures=measured.measures,
        summary=measured.summary,
    )


def _model(path: Path) -> ResultFile:
    return ResultFile(
        name=MODEL_FILE,
        shape=(_values(path),),
        units=("values",),
        bytes=path.stat().st_size,
        sha256=sha256_of(path),
        how_to_read=f"safetensors.torch.load_file('{MODEL_FILE}')",
    )


def _values(path: Path) -> int:
    """Return how many numbers a safetensors file holds: its header, JSON after its length, has all shapes."""
    with path.open("rb") as file:
        # The header alone: a model of many GB is not read for a number.
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(item["shape"]) for name, item in header.items() if name != "__metadata__")
