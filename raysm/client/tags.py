"""The tags by which raysm knows a job again from another process or day. Whoever may describe the job reads them."""

from collections.abc import Mapping

from raysm.client.python_version import python_version
from raysm.contract.names import MAX_RESTARTS_TAG, PROJECT_TAG, PYTHON_TAG, TASK_TAG, TRACKING_TAG, WORKLOAD_TAG
from raysm.request import JobRequest

__all__ = ["tags_of"]


def tags_of(request: JobRequest, task: str) -> Mapping[str, str]:
    """Return raysm's tags for a job."""
    tags = {PROJECT_TAG: request.project, TASK_TAG: task, WORKLOAD_TAG: request.workload.kind}
    if request.workload.returns_value:
        tags[PYTHON_TAG] = request.workload.pickled_by or python_version()
    if request.tracking is not None and not request.is_tracked_by_head:
        tags[TRACKING_TAG] = request.tracking
    if request.limits.max_restarts:
        tags[MAX_RESTARTS_TAG] = str(request.limits.max_restarts)
    return tags
