"""Jobs that leave their main process to the image: what AWS's framework images would run flows out.

An image's own entry point is in the image, of which this machine has nothing. What those of AWS do is known: they run
the script that a hyperparameter names (``raysm.local.framework_image``).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raysm.contract.paths import DEFAULT_BASE
from raysm.errors import InvalidRequest
from raysm.local import framework_image
from raysm.local.framework_image import PROGRAM, SUBMITTED, decoded
from raysm.local.server.definitions import Source
from raysm.request.targets import instance_kind

__all__ = ["check_kind", "entrypoint_of", "source_of"]


def entrypoint_of(request: Mapping[str, Any]) -> list[str] | None:
    """Return the main process of a training job: its own, or the framework images'; None where nobody says."""
    command = request["AlgorithmSpecification"].get("ContainerEntrypoint")
    if command:
        return list(command)
    if not _value(request, PROGRAM):
        return None
    # By its path: the instances are processes of this machine, and see its files.
    return ["python3", str(Path(framework_image.__file__).resolve()), str(DEFAULT_BASE)]


def check_kind(request: Mapping[str, Any], kind: str) -> None:
    """Refuse a job whose main process is left to the image where real images are run.

    Raises:
        InvalidRequest: The program that plays the framework images is not in a container.
    """
    if instance_kind(kind).needs_image and not request["AlgorithmSpecification"].get("ContainerEntrypoint"):
        raise InvalidRequest(
            f"instances of kind {kind!r} need ContainerEntrypoint; add it to the request, or take "
            "instances of another kind"
        )


def source_of(request: Mapping[str, Any]) -> Source | None:
    """Return what is to be brought as the code of a job that a framework image would fetch by itself."""
    uri = _value(request, SUBMITTED)
    if request["AlgorithmSpecification"].get("ContainerEntrypoint") or not uri.startswith("s3://"):
        return None
    return Source(name=SUBMITTED, uri=uri)


def _value(request: Mapping[str, Any], name: str) -> str:
    hyperparameters = decoded(request.get("HyperParameters") or {})
    return str(hyperparameters.get(name) or (request.get("Environment") or {}).get(name.upper()) or "")
