"""The tracking servers of one home, and what they are to its jobs: requests flow in, variables and ways flow out.

::

    HOME/mlflow/REGION/NAME/record.json     the request, and when it came
    HOME/mlflow/REGION/NAME/mlflow.db       MLflow's own store
"""

import contextlib
import json
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from raysm.contract.clock import Clock
from raysm.contract.folders import make_folder
from raysm.contract.store import put, read_json
from raysm.errors import InvalidConfig, InvalidRequest
from raysm.local.instances import Instance
from raysm.local.server.api_error import ApiError, validation
from raysm.local.server.mlflow.endpoint import Endpoint, serving
from raysm.local.server.mlflow.process import MlflowProcess
from raysm.local.server.moto_internals import ACCOUNT
from raysm.request.instance_kinds import instance_kind

__all__ = ["TrackingServer", "TrackingServers"]

ARN_PART = ":mlflow-tracking-server/"
KEYS = {"AWS_ACCESS_KEY_ID": "raysm", "AWS_SECRET_ACCESS_KEY": "raysm"}
"""Of a job's role, as boto3 in it finds it: any will do."""
ENDPOINT = "SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT"
"""AWS's plugin's own variable: whom it asks in the place of AWS (sagemaker_mlflow/mlflow_sagemaker_helpers.py)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackingServer:
    """One of them."""

    name: str
    """Unique within its region."""
    region: str
    """To which the request was sent."""
    request: Mapping[str, Any]
    """CreateMlflowTrackingServer."""
    created_s: float
    """When it was taken in."""

    @property
    def arn(self) -> str:
        """By which programs know it."""
        return f"arn:aws:sagemaker:{self.region}:{ACCOUNT}{ARN_PART}{self.name}"


class TrackingServers:
    """All of one home; every method may be called from any thread.

    Attributes:
        clock: By which they are dated.
        endpoint: Passes requests on to the MLflow behind them.
    """

    def __init__(self, home: Path, clock: Clock) -> None:
        """Read which there are; no MLflow runs before somebody asks."""
        self.clock = clock
        self.endpoint = Endpoint(self.process)
        self.url = ""
        self._folder = home / "mlflow"
        # Once: a home that was deleted is not to come back.
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        # Another one: while an MLflow is waited for, for seconds, questions about the others are answered.
        self._running = threading.Lock()
        self._servers: dict[str, TrackingServer] = {}
        self._processes: dict[str, MlflowProcess] = {}
        for path in self._folder.glob("*/*/record.json"):
            # One that cannot be read is passed over, as if it were not there.
            with contextlib.suppress(InvalidConfig, TypeError):
                server = TrackingServer(**read_json(path))
                self._servers[server.arn] = server

    def listen(self, url: str) -> None:
        """Be reached at ``url``, the server's own."""
        self.url = url

    def add(self, server: TrackingServer) -> None:
        """Keep a new one.

        Raises:
            ApiError: ResourceInUse, if there is one of its name.
        """
        with self._lock:
            if server.arn in self._servers:
                raise ApiError("ResourceInUse", f"a tracking server with this name already exists ({server.arn})")
            folder = self._folder_of(server)
            make_folder(folder, within=self._folder)
            put(folder / "record.json", json.dumps(asdict(server)), mode=0o600, within=folder)
            self._servers[server.arn] = server

    def named(self, name: str, region: str) -> TrackingServer:
        """Return one.

        Raises:
            ApiError: ResourceNotFound.
        """
        return self._get(TrackingServer(name=name, region=region, request={}, created_s=0.0).arn)

    def all(self, region: str) -> list[TrackingServer]:
        """Return those of a region."""
        with self._lock:
            return [server for server in self._servers.values() if server.region == region]

    def delete(self, server: TrackingServer) -> None:
        """End its MLflow, and remove it with all its runs."""
        # Both, to the end: neither is its MLflow to begin anew meanwhile, nor another one of its name to be made.
        with self._running, self._lock:
            if self._servers.pop(server.arn, None) is None:
                return
            process = self._processes.pop(server.arn, None)
            if process is not None:
                process.close()
            shutil.rmtree(self._folder_of(server), ignore_errors=True)

    def process(self, arn: str) -> MlflowProcess:
        """Return the MLflow behind a tracking server, begun if it does not run.

        Raises:
            ApiError: ResourceNotFound.
            RaysmError: It does not come up.
        """
        with self._running:
            server = self._get(arn)
            process = self._processes.get(arn)
            if process is None or not process.is_alive:
                if process is not None:
                    process.close()
                process = self._processes[arn] = MlflowProcess(
                    self._folder_of(server), server.request["ArtifactStoreUri"]
                )
            return process

    def close(self) -> None:
        """End every MLflow."""
        with self._running:
            for process in self._processes.values():
                process.close()
            self._processes.clear()

    # To a job

    def check(self, request: Mapping[str, Any], kind: str) -> None:
        """Refuse a job whose MlflowConfig names what is not there, or that would not reach it.

        Raises:
            ApiError: What, and what to do.
        """
        arn = _arn_of(request)
        if arn is None:
            return
        if ARN_PART not in arn:
            raise validation(f"MlflowConfig: {arn} is no tracking server, and MLflow apps are not available here")
        self._get(arn)
        if not instance_kind(kind).reaches_server:
            raise validation(f"MlflowConfig: instances of kind {kind} do not reach MLflow here; use another kind")

    def variables(self, request: Mapping[str, Any]) -> Mapping[str, str]:
        """Return by what AWS's plugin in a job's instances finds its tracking server, which answers from now on.

        Raises:
            InvalidRequest: It was deleted meanwhile.
            RaysmError: Its MLflow does not come up.
        """
        arn = _arn_of(request)
        if arn is None:
            return {}
        # Before the instances: on AWS it is always there, and a short job has ended before MLflow is imported.
        try:
            self.process(arn)
        except ApiError as error:
            raise InvalidRequest(f"MlflowConfig: {error}") from None
        return {**KEYS, ENDPOINT: self.url}

    @contextlib.contextmanager
    def open_to(self, request: Mapping[str, Any], instances: Mapping[str, Instance]) -> Iterator[None]:
        """Let the instances of a job reach its tracking server in the block, at the address of this server."""
        with contextlib.ExitStack() as ways:
            for instance in instances.values() if _arn_of(request) else ():
                # One that has ended already needs none.
                with contextlib.suppress(FileNotFoundError):
                    listener = instance.listen(int(self.url.rpartition(":")[2]))
                    if listener is not None:
                        ways.enter_context(serving(self.endpoint, listener))
            yield

    def _get(self, arn: str) -> TrackingServer:
        with self._lock:
            server = self._servers.get(arn)
            there = ", ".join(sorted(self._servers)) or "none"
        if server is None:
            raise ApiError(
                "ResourceNotFound",
                f"there is no tracking server {arn} here; there are: {there}; CreateMlflowTrackingServer makes one",
            )
        return server

    def _folder_of(self, server: TrackingServer) -> Path:
        return self._folder / server.region / server.name


def _arn_of(request: Mapping[str, Any]) -> str | None:
    arn: str | None = (request.get("MlflowConfig") or {}).get("MlflowResourceArn")
    return arn
