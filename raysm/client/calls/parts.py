"""What the calls of all APIs are made of, and the form in which an API says how it is called."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from raysm.client.places import Places
from raysm.contract.names import INSTANCE_KIND_TAG, INSTANCE_TYPE_TAG
from raysm.contract.paths import Paths
from raysm.contract.seal import START, Seal
from raysm.contract.service_model import FILE
from raysm.errors import InvalidRequest
from raysm.request import Input, JobRequest, Target
from raysm.request.cluster import LOCAL_TYPE
from raysm.request.job import JOB_CHANNEL, PAYLOAD_CHANNEL

__all__ = ["Call", "Parts", "join_path", "present"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What the parts of a call are made of."""

    request: JobRequest
    """The job."""
    target: Target
    """Where it goes."""
    places: Places
    """The target's prefixes."""
    state: str | None
    """Checkpoint prefix; None is a new one of this job."""
    tags: Mapping[str, str]
    """The user's and raysm's."""

    seal: Seal | None
    """Of the payload; None is a plan that is looked at, and not sent."""
    shared: str | None = None
    """Prefix of what the payload shares with those of other jobs; None is nothing."""

    def entrypoint(self, inside: Paths) -> list[str]:
        """Return the main process of each instance, whose folders are ``inside``."""
        if self.seal is None:
            return ["python3", str(inside.payload / START)]
        return self.seal.command(inside.payload, inside.failure)

    def channels(self) -> list[tuple[str, Input]]:
        """Return the inputs by name, raysm's own first."""
        # Channels name groups all or none: where the user's do, the payload goes to all groups by name.
        groups = tuple(group.name for group in self.request.cluster.groups)
        named = any(source.groups for source in self.request.inputs.values())
        # With the slash: else the payload of a job whose name begins with this one's would come along.
        payload = self.places.payload(self.request.project, self.request.name)
        prefixes = (
            {PAYLOAD_CHANNEL: payload} if self.shared is None else {PAYLOAD_CHANNEL: self.shared, JOB_CHANNEL: payload}
        )
        channels = {name: Input(f"{uri}/", groups=groups if named else ()) for name, uri in prefixes.items()}
        return [*channels.items(), *self.request.inputs.items()]

    def uri(self, channel: str, source: Input) -> str:
        """Return where the service reads an input."""
        if source.uri.startswith("s3://"):
            return source.uri
        if self.target.takes_files and source.uri.startswith(FILE):
            return source.uri
        raise InvalidRequest(
            f"the channel {channel!r} is {source.uri!r}, which the service cannot read: give s3://bucket/key "
            "(raysm.submit uploads local data for AWS), or on this machine file:///path"
        )

    def data_type(self, source: Input) -> str:
        """Return what the service finds at an input's URI."""
        return "ManifestFile" if source.manifest else "S3Prefix"

    def output_root(self) -> str:
        """Return the prefix below which the service makes one for the job."""
        return (self.request.output_uri or self.places.outputs(self.request.project)).rstrip("/")

    def output_prefix(self) -> str:
        """Return the prefix below which ``model/`` and ``data/`` of this job will lie."""
        return join_path(self.output_root(), self.request.name)

    def network(self) -> dict[str, Any] | None:
        """Return the VPC that the instances join; None is none."""
        security = self.request.security
        if not security.subnets:
            return None
        return {"SecurityGroupIds": list(security.security_groups), "Subnets": list(security.subnets)}

    def tag_list(self) -> list[dict[str, str]]:
        """Return all tags, as the API takes them."""
        tags = {**self.tags, **self._kind_tag(), **self._type_tag()}
        return [{"Key": key, "Value": value} for key, value in tags.items()]

    def _kind_tag(self) -> Mapping[str, str]:
        # Of the other kinds the image itself says so; a real image has a name of its own.
        kind = self.target.instance_kind_told()
        return {} if kind is None else {INSTANCE_KIND_TAG: kind}

    def _type_tag(self) -> Mapping[str, str]:
        return {INSTANCE_TYPE_TAG: LOCAL_TYPE} if LOCAL_TYPE in self.request.cluster.types else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """How one API is called."""

    check: Callable[[JobRequest], None]
    """Refuses what is not to be had there, or excludes itself."""
    parameters: Callable[[Parts], dict[str, Any]]
    """Returns the parameters of its Create."""
    outputs: Callable[[str, Mapping[str, Any]], str]
    """Returns the prefix below which ``model/`` and ``data/`` of a job lie, without a slash at its end: of the job's
    name, and its request or what Describe answered."""


def present(**values: Any) -> dict[str, Any]:
    """Return what is there: the API takes no null."""
    return {name: value for name, value in values.items() if value is not None}


def join_path(root: str, job: str) -> str:
    """Return the prefix below which the service leaves what ``job`` made, where ``root`` is its output path."""
    return f"{root.rstrip('/')}/{job}/output"
