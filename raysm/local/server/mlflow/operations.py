"""SageMaker's operations on MLflow's tracking servers: what flows in is a request, what flows out is its answer.

Create and Delete take minutes on AWS, and nothing here: a server is Created at once, and gone at once.
"""

from collections.abc import Callable, Mapping
from typing import Any

from raysm.local.server.api_error import validation
from raysm.local.server.listing import page_of
from raysm.local.server.mlflow.process import installed, missing
from raysm.local.server.mlflow.servers import TrackingServer, TrackingServers
from raysm.local.server.validation import check

__all__ = ["MlflowOperations"]

NAME = "TrackingServerName"
STATUS = "Created"
KEPT = (
    "ArtifactStoreUri",
    "AutomaticModelRegistration",
    "RoleArn",
    "TrackingServerSize",
    "WeeklyMaintenanceWindowStart",
)
"""What Describe says of the request."""


class MlflowOperations:
    """Create, Describe, List and Delete."""

    def __init__(self, servers: TrackingServers, lack: Callable[[], str | None] = missing) -> None:
        """Work on ``servers``; ``lack`` returns why there can be none on this machine."""
        self._servers, self._lack = servers, lack
        self._operations: dict[str, Callable[[Mapping[str, Any], str], Mapping[str, Any]]] = {
            "CreateMlflowTrackingServer": self._create,
            "DescribeMlflowTrackingServer": self._describe,
            "ListMlflowTrackingServers": self._list,
            "DeleteMlflowTrackingServer": self._delete,
        }

    def has(self, operation: str, request: Mapping[str, Any]) -> bool:
        """Whether ``operation`` is ours."""
        return operation in self._operations

    def answer(self, operation: str, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        """Answer a request; raises ApiError where it is refused."""
        check(operation, request)
        return self._operations[operation](request, region)

    def _create(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        lack = self._lack()
        if lack:
            raise validation(lack)
        asked = request.get("MlflowVersion")
        if asked and asked != installed():
            raise validation(f"MlflowVersion {asked} is not available here: leave it out, and it is {installed()}")
        server = TrackingServer(
            name=request[NAME],
            region=region,
            request={name: request[name] for name in KEPT if request.get(name) is not None},
            created_s=self._servers.clock.now(),
        )
        self._servers.add(server)
        return {"TrackingServerArn": server.arn}

    def _describe(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        server = self._servers.named(request[NAME], region)
        defaults = {"AutomaticModelRegistration": False, "TrackingServerSize": "Small"}
        return {**defaults, **server.request, **_summary(server), "TrackingServerUrl": self._servers.url}

    def _list(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        servers = [server for server in self._servers.all(region) if _matches(server, request)]
        # Of one status or moment all are: their names decide then, so that two pages have none twice.
        by_name = request.get("SortBy") == "Name"
        servers.sort(
            key=lambda server: ("" if by_name else server.created_s, server.name),
            reverse=request.get("SortOrder") != "Ascending",
        )
        page, more = page_of(servers, request, lambda server: server.name)
        return {"TrackingServerSummaries": [_summary(server) for server in page], **more}

    def _delete(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        server = self._servers.named(request[NAME], region)
        self._servers.delete(server)
        return {"TrackingServerArn": server.arn}


def _matches(server: TrackingServer, request: Mapping[str, Any]) -> bool:
    tests: dict[str, Callable[[Any], bool]] = {
        "CreatedAfter": lambda at: server.created_s >= at,
        "CreatedBefore": lambda at: server.created_s <= at,
        "TrackingServerStatus": lambda status: status == STATUS,
        "MlflowVersion": lambda version: version == installed(),
    }
    return all(test(request[name]) for name, test in tests.items() if request.get(name) is not None)


def _summary(server: TrackingServer) -> dict[str, Any]:
    return {
        "TrackingServerArn": server.arn,
        NAME: server.name,
        "CreationTime": server.created_s,
        "LastModifiedTime": server.created_s,
        "TrackingServerStatus": STATUS,
        "IsActive": "Active",
        "MlflowVersion": installed(),
    }
