"""The tags by which raysm knows a job again from another process or day. Whoever may describe the job reads them."""

from collections.abc import Mapping

from raysm.client.function import python_version
from raysm.request import JobRequest

__all__ = ["FIRST", "MAX_RESTARTS", "PROJECT", "PYTHON", "RESTART", "TASK", "WORKLOAD", "tags_of"]

PROJECT = "raysm:project"
"""Of the task."""
TASK = "raysm:task"
"""Name of the task, whose runs the jobs are."""
WORKLOAD = "raysm:workload"
"""Kind of the workload: it says what the result is."""
PYTHON = "raysm:python"
"""Version of the Python whose pickles come back, a value or an exception; there where the result is a value."""
MAX_RESTARTS = "raysm:max-restarts"
"""How often a job that ran too long goes on in a follow-up job."""
RESTART = "raysm:restart"
"""Number of the follow-up job, from 1."""
FIRST = "raysm:first"
"""Name of the job that a follow-up job goes on with."""


def tags_of(request: JobRequest, task: str) -> Mapping[str, str]:
    """Return raysm's tags for a job."""
    found = {PROJECT: request.project, TASK: task, WORKLOAD: request.workload.kind}
    if request.workload.returns_value:
        found[PYTHON] = request.workload.pickled_by or python_version()
    if request.limits.max_restarts:
        found[MAX_RESTARTS] = str(request.limits.max_restarts)
    return found
