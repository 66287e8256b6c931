"""``raysm://NAME`` as an address for Ray's commands and clients.

Ray imports the module that the address begins with, and calls ``get_job_submission_client_cluster_info`` with the rest:
``ray job submit --address raysm://NAME``, ``ray list nodes --address raysm://NAME``, ``JobSubmissionClient``. The token
travels in a header, and so is in no argument, URL or variable.
"""

import atexit
import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from raysm.client.job.handle import token_of
from raysm.client.job.listing import find_job
from raysm.client.project import Project, find_project_file
from raysm.client.service import connect
from raysm.client.settings import Settings
from raysm.client.tunnel.dashboard import place_of, way_to
from raysm.errors import InvalidRequest, RaysmError
from raysm.request import Target

_open = contextlib.ExitStack()
"""Open tunnels, until this process ends: Ray does not say when it no longer needs them."""

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

    try:
        job = find_job(unquote(address).strip("/"), connect(_target()))
        # Right after a session's start it is not there yet; Ray would then report a failed connection.
        place = place_of(job)
        # Open until the end of the process: `ray job logs --follow` comes back by it for hours.
        way = _open.enter_context(way_to(job, place))
    except RaysmError as error:
        raise _shown_by_click(error) from error
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


def _shown_by_click(error: RaysmError) -> Exception:
    """Return the error as Ray's commands show it on one line: as click's own, if a command runs."""
    click = sys.modules.get("click")
    if click is None or click.get_current_context(silent=True) is None:
        return error
    shown: Exception = click.ClickException(str(error))
    return shown


def _target() -> Target:
    file = find_project_file(Path.cwd(), Path.home())
    layers = [] if file is None else Project.read(file).chosen()
    # Reading a job needs no role, only the caller's credentials.
    return Settings(layers).target(role="arn:aws:iam::000000000000:role/unused")
