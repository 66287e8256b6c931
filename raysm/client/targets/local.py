"""The embedded SageMaker as the client uses it: its server is found or started, and waited for."""

import importlib.util
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from raysm.client.targets import endpoint
from raysm.client.targets.connection import Bucket, Clients, Connection, Polling, Resolved, client_options
from raysm.contract.home import Clock, ServerRecord, home, scenario_file
from raysm.contract.names import LOCAL_BUCKET, LOCAL_REGION
from raysm.contract.packages import name_of
from raysm.contract.service_model import loader
from raysm.errors import MissingDependency, ServiceError
from raysm.request import JobRequest, Local

__all__ = ["LocalConnection"]

EXTRAS = {
    "IPython": "interactive",
    "mlflow": "mlflow",
    "optuna": "sweep",
    "safetensors": "train",
    "sagemaker_mlflow": "mlflow",
    "torch": "train",
}
"""The extra of raysm that installs each package of a workload which the extra ``local`` does not."""
POLL_S = 20
"""Seconds for which it is asked to say when a job ends, before it is asked again."""


class LocalConnection(Connection):
    """The embedded SageMaker of one home."""

    def __init__(self, target: Local) -> None:
        """Connect to nothing yet."""
        self.polling = Polling(first_s=0.1, most_s=0.5)
        self._target = target
        self._home = home(target.home)
        self._session: Any = None
        self._url: str | None = None

    @property
    def home(self) -> Path:
        """The server's root folder."""
        return self._home

    def region(self, clients: Clients) -> str:
        """Return the region that a job goes to."""
        return self._target.regions[0]

    def bucket(self, region: Callable[[], str], account: Callable[[], str]) -> Bucket:
        """Return the server's own bucket of the region."""
        # A bucket is one region's, as on AWS: jobs of one name in two regions must not find each other's payloads.
        return Bucket(name=LOCAL_BUCKET if self._is_home else f"{LOCAL_BUCKET}-{self._target.regions[0]}")

    def data_root(self, bucket_root: str) -> str:
        """Return a folder of the home: nothing large passes through an S3 that lives in memory."""
        # @, which no project has in its name: results of one name in two regions lie apart, too.
        folder = self._home / "data"
        return (folder if self._is_home else folder / f"@{self._target.regions[0]}").as_uri()

    @property
    def _is_home(self) -> bool:
        return self._target.regions[0] == LOCAL_REGION

    @property
    def clock(self) -> Clock:
        """The server's, which a scenario may let run faster; started where none answers, as by the first call."""
        endpoint.ensure(self._home)
        record = ServerRecord.read(self._home)
        return Clock() if record is None else record.clock

    @property
    def lists_quotas(self) -> bool:
        """Whether it plays a scenario: without one it has neither prices nor quotas."""
        return scenario_file(self._home).exists()

    @property
    def lists_prices(self) -> bool:
        """Whether it plays a scenario, which has prices of its own."""
        return self.lists_quotas

    def resolve(self, request: JobRequest, region: Callable[[], str]) -> Resolved:
        """Return the target: it needs no image but what its kind of instance asks for.

        Raises:
            MissingDependency: This Python, which instances of kind process and namespace use too, lacks a package.
        """
        if self._target.instance_kind != "docker":
            _check_packages(request)
        return Resolved(target=self._target)

    def make_client(self, name: str) -> Any:
        """Return a client of the server, which is started where none answers."""
        import boto3
        import botocore.session

        if self._session is None:
            # No variable names its profile: AWS_PROFILE may be one that this machine does not have.
            core = botocore.session.Session({"profile": (None, None, None, None)})
            core.register_component("data_loader", loader())
            self._session = boto3.Session(
                aws_access_key_id="raysm",
                aws_secret_access_key="raysm",
                region_name=self._target.regions[0],
                botocore_session=core,
            )
        if self._url is None:
            self._url = endpoint.ensure(self._home)
            record = ServerRecord.read(self._home)
            # A scenario may have lines come late, as CloudWatch's do: a server that was started again may play another.
            self.polling = replace(self.polling, late_s=record.log_late_s if record is not None else 0.0)
        config = client_options(
            repeats=self.repeats or name != "sagemaker",
            proxies={},  # the proxy of this machine's way out knows no loopback
            s3={"addressing_style": "path"},
        )
        return self._session.client(name, endpoint_url=self._url, config=config)

    def reconnect(self, error: Exception, *, is_followed: bool = False) -> bool:
        """Whether the server is gone: it ends itself when it has been idle, and is started again.

        Raises:
            ServiceError: It was told to end while a job was followed.
        """
        from botocore.exceptions import EndpointConnectionError

        is_gone = isinstance(error, EndpointConnectionError)
        # With a job it is not idle: who told it to end does not want another one. A killed one leaves its record
        # behind, and is started again, to say what became of the job.
        if is_gone and is_followed and ServerRecord.read(self._home) is None:
            raise ServiceError(
                f"the embedded SageMaker of {self._home} was ended, and its jobs with it; the next command starts it "
                "again: raysm jobs shows how they ended"
            )
        if is_gone:
            self._url = None
        return is_gone

    def wait_for_end(self, job: str, pause_s: float, most_s: float) -> None:
        """Wait until the server says that a job has ended; where it cannot, ``pause_s``.

        To be asked twice a second would take 1 % of a core from the job.
        """
        poll_s = int(min(POLL_S, most_s))
        if self._url is None or poll_s < 1 or not endpoint.hear_end(self._url, self._target.regions[0], job, poll_s):
            time.sleep(min(pause_s, most_s))

    def wait_for_change(self, job: str, seen: int, pause_s: float, most_s: float) -> int:
        """Wait until the server says that a job has another line or status; where it cannot, ``pause_s``.

        So a line is seen at once, and a job that says nothing is not looked at twice a second.
        """
        began_s, poll_s = time.monotonic(), int(min(POLL_S, most_s))
        changes = None
        if self._url is not None and poll_s >= 1:
            changes = endpoint.hear_change(self._url, self._target.regions[0], job, seen, poll_s)
        # A job that writes all the time is not to be looked at all the time: each look is several calls.
        least_s = min(pause_s if changes is None else self.polling.first_s, most_s)
        time.sleep(max(0.0, began_s + least_s - time.monotonic()))
        return seen if changes is None else changes


def _check_packages(request: JobRequest) -> None:
    """Refuse a job whose instances would have to download packages such as torch, of gigabytes, for this job alone."""
    required = {name_of(line) for line in request.requirements}
    for package in request.packages:
        extra = EXTRAS.get(package)
        is_missing = importlib.util.find_spec(package) is None and package.replace("_", "-") not in required
        if extra is not None and is_missing:
            raise MissingDependency(
                f"{type(request.workload).__name__} needs the package {package!r}, which this Python lacks: "
                f"python3 -m pip install 'raysm[{extra}]'"
            )
