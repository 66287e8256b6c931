"""The manifest beside a trained model: what was trained, from what, how long it took, and where the time went."""

import json
import math
import platform
from importlib import metadata
from pathlib import Path

import ray

import raysm
from raysm.contract.result import MODEL_FILE, TRAINING, Manifest, Measured, ResultFile
from raysm.contract.store import sha256_of
from raysm.request import JobRequest
from raysm.request.codec import to_json

__all__ = ["write_manifest"]


def write_manifest(request: JobRequest, model: Path, hosts: tuple[str, ...], training_s: float) -> Manifest | None:
    """Write the manifest into the folder ``model``, as the last file of the result; None where there is no model.

    Args:
        request: What was asked for.
        model: Rank 0's model folder, on the head.
        hosts: The instances that trained.
        training_s: From the first worker's start to the last one's end, seconds, restarts included.
    """
    path = model / MODEL_FILE
    if not path.is_file():
        return None
    measured = Measured.read(model) if (model / TRAINING).is_file() else Measured(summary="", measures={})
    manifest = Manifest(
        job=request.name,
        workload=to_json(request.workload),
        inputs={name: to_json(given) for name, given in request.inputs.items()},
        files=(
            ResultFile(
                name=MODEL_FILE,
                shape=(_values(path),),
                bytes=path.stat().st_size,
                sha256=sha256_of(path),
                how_to_read=f"safetensors.torch.load_file('{MODEL_FILE}')",
            ),
        ),
        versions={
            "raysm": raysm.__version__,
            "python": platform.python_version(),
            "ray": ray.__version__,
            "torch": metadata.version("torch"),
        },
        instances=hosts,
        phases_s={"training": round(training_s, 3)},
        measures=measured.measures,
        summary=measured.summary,
    )
    manifest.write(model)
    return manifest


def _values(path: Path) -> int:
    """Return how many numbers a safetensors file holds: its header, JSON after its length, has all shapes."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(item["shape"]) for name, item in header.items() if name != "__metadata__")
