"""The named inputs of a job."""

from dataclasses import dataclass, field
from typing import Literal

from raysm.errors import InvalidRequest
from raysm.request.options import decides

Distribution = Literal["FullyReplicated", "ShardedByS3Key"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """One channel: where its data lies, and how the instances share it.

    Raises:
        InvalidRequest: The URI is empty, or what is asked for excludes itself.
    """

    uri: str = field(kw_only=False, metadata=decides(result=True, create="InputDataConfig"))
    """``s3://bucket/key``, ``file:///path`` or a local path; a file, or a folder of files."""
    distribution: Distribution = field(
        default="FullyReplicated", metadata=decides(result=True, create="InputDataConfig")
    )
    """FullyReplicated: each instance has all. ShardedByS3Key: each has about 1/n of the objects, by key."""

    mode: Literal["File", "FastFile"] = field(
        default="File", metadata=decides(result=True, create="InputDataConfig", processing_lacks="FastFile channels")
    )
    """File: downloaded before the job starts. FastFile: streamed as it is read."""
    content_type: str | None = field(
        default=None,
        metadata=decides(result=True, create="InputDataConfig", processing_lacks="content types of channels"),
    )
    """MIME type, told to the job."""
    groups: tuple[str, ...] = field(
        default=(),
        metadata=decides(result=True, create="InputDataConfig", processing_lacks="instance groups"),
    )
    """Instance groups that get it; all channels name groups, or none does."""
    manifest: bool = field(default=False, metadata=decides(result=True, create="InputDataConfig"))
    """Whether the URI is that of a manifest: a JSON list of a prefix and the names of some objects below it,
    ``[{"prefix": "s3://bucket/images/"}, "0001.png", "a/0002.png"]``, which are all that the channel has."""

    def __post_init__(self) -> None:
        # A list alone: of a text, tuple() would make its letters, where the codec refuses it by its name.
        if isinstance(self.groups, list):
            object.__setattr__(self, "groups", tuple(self.groups))
        if not self.uri:
            raise InvalidRequest("Input: the uri is empty; give s3://…, file://… or a path")
        # Of a Literal only the codec makes sure, and that is in the instances.
        if self.distribution not in ("FullyReplicated", "ShardedByS3Key"):
            raise InvalidRequest(
                f"Input: distribution is 'FullyReplicated' or 'ShardedByS3Key', got {self.distribution!r}"
            )
        if self.manifest and self.mode == "FastFile":
            raise InvalidRequest(
                f"Input: the manifest {self.uri!r} cannot be streamed; drop mode='FastFile', or give a prefix"
            )
