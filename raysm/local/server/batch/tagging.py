"""Batch's operations on tags: of jobs, and of what they are sent to."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raysm.local.server.batch.model import client_error
from raysm.local.server.batch.records import BatchJobs
from raysm.local.server.batch.resources import Resource, Resources

__all__ = ["Tagging"]

MOST_TAGS = 50


class Tagging:
    """All operations on tags."""

    def __init__(self, jobs: BatchJobs, resources: Resources) -> None:
        """Tag ``jobs`` and ``resources``."""
        self._jobs, self._resources = jobs, resources
        self.operations: dict[str, Callable[[Mapping[str, Any], str], Mapping[str, Any]]] = {
            "TagResource": lambda request, _: self._change(request["resourceArn"], request["tags"], ()),
            "UntagResource": lambda request, _: self._change(request["resourceArn"], {}, request["tagKeys"]),
            "ListTagsForResource": lambda request, _: {"tags": dict(self._tags(request["resourceArn"]))},
        }

    def _resource(self, arn: str) -> Resource:
        # The region is the ARN's: a tag of a queue may be set from anywhere.
        region, part = arn.split(":")[3], arn.split(":")[5].partition("/")[0] if arn.count(":") >= 5 else ""
        return self._resources.get(part, region, arn)

    def _tags(self, arn: str) -> Mapping[str, str]:
        if not arn.startswith("arn:"):
            raise client_error(f"{arn!r} is no ARN")
        job = self._jobs.find(arn)
        tags: Mapping[str, str] = job.tags if job is not None else self._resource(arn).body.get("tags") or {}
        return tags

    def _change(self, arn: str, new: Mapping[str, str], removed: Sequence[str]) -> Mapping[str, Any]:
        tags = {name: value for name, value in {**self._tags(arn), **new}.items() if name not in removed}
        if len(tags) > MOST_TAGS:
            raise client_error(f"a resource has at most {MOST_TAGS} tags, this is {len(tags)}")
        # Of jobs in their records, of all else beside what it was made of.
        job = self._jobs.find(arn)
        if job is not None:
            self._jobs.update(job.id, tags=tags)
        else:
            self._resources.change(self._resource(arn), tags=tags)
        return {}
