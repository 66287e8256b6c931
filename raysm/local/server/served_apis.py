"""How the embedded SageMaker serves each API: its checks of a request, and what the request means for the instances.

To serve another API, write the module that reads its requests and add one entry below.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from raysm.contract.job_api import PROCESSING, TRAINING, JobApi
from raysm.local.job_spec import JobSpec
from raysm.local.server import processing_request, training_request
from raysm.local.server.definitions import Definition
from raysm.local.server.objects import Objects
from raysm.local.server.records import JobRecord

__all__ = ["ServedApi", "served"]

Sources: TypeAlias = Mapping[str, tuple[Path, bool]]
"""By channel: where its data lies on this machine, and whether it is the job's own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedApi:
    """What differs between the APIs."""

    check: Callable[[Mapping[str, Any]], None]
    """Refuses what is not to be had on this machine; raises ApiError."""
    image: Callable[[Mapping[str, Any]], str]
    """Returns the image that a request names."""
    define: Callable[[JobRecord], Definition]
    """Says what the lifecycle has to do for a job."""
    specify: Callable[[JobRecord, Objects, Sources], JobSpec]
    """Says what runs."""


SERVED: Mapping[JobApi, ServedApi] = {
    TRAINING: ServedApi(
        check=training_request.check,
        image=training_request.image,
        define=training_request.define,
        specify=training_request.specify,
    ),
    PROCESSING: ServedApi(
        check=processing_request.check,
        image=processing_request.image,
        define=processing_request.define,
        specify=processing_request.specify,
    ),
}


def served(api: JobApi) -> ServedApi:
    """Return how ``api`` is served."""
    return SERVED[api]
