"""The API call that will be sent, made from a checked request whose inputs are in S3. Pure: it reads and asks nothing.

``raysm.client.calls`` has the parameters of each API.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raysm.client.calls import Parts, call_of
from raysm.client.storage.places import Places
from raysm.contract.job_api import JobApi, api_of
from raysm.contract.names import INSTANCE_TYPE_TAG
from raysm.contract.seal import Seal
from raysm.errors import InvalidRequest
from raysm.request import JobRequest, Target
from raysm.request.cluster import LOCAL_TYPE
from raysm.request.targets import LOCAL_INSTANCE_TYPE

__all__ = ["Plan", "chosen_types", "plan"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """One API call, sent unchanged."""

    api: JobApi
    """Whose Create it is."""
    request: Mapping[str, Any]
    """Its parameters, JSON values."""

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self.request[self.api.name_key])

    @property
    def outputs(self) -> str:
        """The prefix below which ``model/`` and ``data/`` of the job will lie."""
        return call_of(self.api).outputs(self.name, self.request)

    def json(self) -> str:
        """Return it as text, for people and for comparisons."""
        return json.dumps({"api": self.api.create, "request": self.request}, indent=1, ensure_ascii=False)


def plan(
    request: JobRequest,
    *,
    target: Target,
    places: Places,
    state: str | None = None,
    tags: Mapping[str, str] | None = None,
    seal: Seal | None = None,
    shared: str | None = None,
) -> Plan:
    """Turn ``request`` into the call that starts it.

    Args:
        request: The job; its inputs are ``s3://`` URIs, or ``file:///`` ones where the target is Local.
        target: Where it goes.
        places: The target's prefixes.
        state: Checkpoint prefix; None is a new one of this job. ``request.checkpoint_uri`` wins over both.
        tags: raysm's own, beside those of the request.
        seal: Of the payload that the job travels with; None is a plan that is looked at, and not sent.
        shared: Prefix of what its payload shares with those of other jobs; None is nothing.

    Raises:
        InvalidRequest: The target or the API cannot do what is asked for.
    """
    target.job_image()  # the first thing that is missing where much is
    for name in ("output_uri", "checkpoint_uri"):
        uri = getattr(request, name)
        if uri is not None and not target.takes_files and not uri.startswith("s3://"):
            raise InvalidRequest(
                f"{name}={uri!r} is on this machine, which AWS cannot write to; give s3://bucket/prefix"
            )
    api = api_of(request.kind)
    call = call_of(api)
    call.check(request)
    # raysm's tags win over the user's: by them another process knows the job again.
    every_tag = {**request.tags, **(tags or {})}
    parts = Parts(request=request, target=target, places=places, state=state, tags=every_tag, seal=seal, shared=shared)
    return Plan(api=api, request=call.parameters(parts))


def chosen_types(instances: tuple[tuple[str, int], ...], tags: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Return instance types and counts as the user chose them.

    Args:
        instances: As the service tells them.
        tags: The job's.
    """
    # The API needs a type even if none was chosen: the tag tells that the type of Describe was no choice.
    if tags.get(INSTANCE_TYPE_TAG) != LOCAL_TYPE:
        return instances
    return tuple((LOCAL_TYPE if name == LOCAL_INSTANCE_TYPE else name, count) for name, count in instances)
