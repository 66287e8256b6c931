"""``raysm://NAME`` as an address of Ray's commands and clients: a name flows in, where its jobs are taken flows out.

Ray imports the module that the address begins with, and calls ``get_job_submission_client_cluster_info`` with the rest:
``ray job submit --address raysm://NAME``, ``ray list nodes --address raysm://NAME``, ``JobSubmissionClient``. What it
gets back are a URL and headers. The token travels in a header, and so stands in no argument, no URL and no variable.
"""

import atexit
import contextlib
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from raysm.client.job import Job, attach
from raysm.client.listing import jobs
from raysm.client.project import Project, find_project_file
from raysm.client.records import task_of
from raysm.client.service import Service, connect
from raysm.client.settings import Settings
from raysm.client.token import token_of
from raysm.client.ways import place_of, way_to
from raysm.errors import InvalidRequest, JobNotFound
from raysm.request import Target

__all__ = ["ClientBuilder", "find_job", "get_job_submission_client_cluster_info"]

LISTED = 200
"""Of so many of the latest jobs the names are compared."""

_open = contextlib.ExitStack()
"""Ways, until this process ends: Ray tells nobody when it needs them no more."""

atexit.register(_open.close)


def get_job_submission_client_cluster_info(
    address: str,
    # Ray gives all of these by their names, and may give more: a signature of our own would not be called.
    create_cluster_if_needed: bool = False,
    cookies: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    headers: Mapping[str, Any] | None = None,
    **_: Any,
) -> Any:
    """Return how Ray's clients reach the cluster of a running job; Ray calls it for ``raysm://NAME``.

    Args:
        address: The job's name, what follows ``raysm://``.
        create_cluster_if_needed: Clusters are not made by being named.
        cookies: Passed on.
        metadata: Passed on.
        headers: Passed on, with the job's token.

    Returns:
        Ray's ``ClusterInfo``.

    Raises:
        JobNotFound: There is no such job; the message has the names that are like it.
        InvalidRequest: It has ended.
        NotDone: Its dashboard did not come up within a minute of the first question.
    """
    from ray.dashboard.modules.dashboard_sdk import ClusterInfo

    job = find_job(unquote(address).strip("/"))
    # Right after a session's start it is not there yet; what Ray would say then is that nobody answers.
    place = place_of(job)
    # Open until the end of the process: `ray job logs --follow` comes back by it for hours.
    way = _open.enter_context(way_to(job, place))
    return ClusterInfo(
        address=f"http://{way.address}",
        cookies=cookies and dict(cookies),
        metadata=metadata and dict(metadata),
        headers={**(headers or {}), "Authorization": f"Bearer {token_of(job)}"},
    )


class ClientBuilder:
    """What ``ray.init("raysm://NAME")`` asks for: a connection of Ray Client, which there is none."""

    def __init__(self, address: str | None) -> None:
        """Refuse.

        Raises:
            InvalidRequest: Always.
        """
        name = address or "NAME"
        # Ray's own maintainers point from it to the Jobs API: https://docs.ray.io/en/latest/cluster/running-applications
        raise InvalidRequest(
            f"ray.init('raysm://{name}') would be Ray Client, which the clusters of raysm do not run: submit a script "
            f"(ray job submit --address raysm://{name} --working-dir . -- python train.py), or call functions in a "
            "session of the cluster (raysm.Session)"
        )


def find_job(name: str, on: "Target | Service | None" = None) -> Job:
    """Return the job of this name, or the latest one that runs of those that their user named so.

    Args:
        name: The job's, ``digits-20260101-120000-0a1b2c3d``, or ``digits``: so a session is named, too.
        on: Where it is; None is where the project's raysm.toml says, else this machine.

    Raises:
        JobNotFound: There is none; the message has the names that are like it.
    """
    service = connect(_target() if on is None else on)
    try:
        return attach(name, service)
    except JobNotFound as error:
        listed = jobs(service, limit=LISTED)
        # Only those that run: a cluster that has ended takes no jobs.
        running = [job.name for job in listed if not job.status.is_terminal]
        of_name = [job for job in running if task_of(job) == name]
        if of_name:
            return attach(of_name[0], service)
        raise JobNotFound(f"{error}{_hint(name, [*map(task_of, running), *(job.name for job in listed)])}") from None


def _hint(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, dict.fromkeys(names), n=3, cutoff=0.6)
    # A part of a name, "digits" of "all-digits-top10", is too short to be near it.
    near = near or [one for one in dict.fromkeys(names) if name in one][:3]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _target() -> Target:
    file = find_project_file(Path.cwd(), Path.home())
    layers = [] if file is None else Project.read(file).chosen()
    # Whoever reads a job needs no role: the caller's own credentials do it.
    return Settings(layers).target(role="arn:aws:iam::000000000000:role/unused")
