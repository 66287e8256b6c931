"""The connection to the embedded SageMaker of a home: find its server, or start it.

The server is a process that outlives this one. If two clients start it at once, both find the one
that got its lock.
"""

import atexit
import functools
import http.client
import importlib.util
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from raysm import __version__
from raysm.core.client.targets.connection import (
    ADDRESS,
    Bucket,
    CheckedConnection,
    Clients,
    Connect,
    Connection,
    Polling,
    client_options,
    send_through,
)
from raysm.core.protocol import own_socket
from raysm.core.protocol.botocore_session import settingless_session
from raysm.core.protocol.file_uri import uri_of
from raysm.core.protocol.home import (
    Clock,
    ServerRecord,
    home,
    lock_file,
    log_file,
    private_folder,
    regions_with_jobs,
    scenario_file,
    unusable,
)
from raysm.core.protocol.names import LOCAL_BUCKET, LOCAL_REGION
from raysm.core.protocol.packages import name_of
from raysm.core.protocol.service_model import loader
from raysm.core.request import JobRequest, Local, Target
from raysm.errors import MissingDependency, ServiceError

EXTRAS = {
    "IPython": "interactive",
    "mlflow": "mlflow",
    "optuna": "sweep",
    "safetensors": "train",
    "sagemaker_mlflow": "mlflow",
    "torch": "train",
}
"""The extra of raysm that installs each package that workloads need and the extra ``local``
lacks."""

LONG_POLL_S = 20

REMEDIES = {
    "AccessDenied": (
        "the scenario's api.denied lists this action: take it out, or use another scenario"
    ),
    "ResourceLimitExceeded": (
        "raise it in the scenario's table market.quotas (spot_quotas for spot jobs), "
        "or take another instance type"
    ),
}
"""A scenario refuses as AWS does, but no console of AWS changes that."""

START_S = 60.0
MAX_BYTES = 1 << 20
"""Limit of an answer."""

NEEDS = ("moto", "flask", "psutil")
"""Packages of the extra ``local`` without which the server does not start."""

_started: list["subprocess.Popen[bytes]"] = []
"""Servers that this process started, kept so that they are reaped."""


class LocalConnection(Connection):
    remedies = REMEDIES

    def __init__(self, target: Local) -> None:
        self.polling = Polling(first_s=0.1, most_s=0.5)
        self._target = target
        self._region = target.regions[0]
        self._home = home(target.home)
        self._session: Any = None
        self._socket: str | None = None

    @property
    def home(self) -> Path:
        return self._home

    def region(self, clients: Clients) -> str:
        return self._region

    def other_regions(self) -> Sequence[str]:
        """Return the other regions of this machine that have jobs, as those of a grid."""
        return [
            region
            for region in (LOCAL_REGION, *regions_with_jobs(self._home))
            if region != self._region
        ]

    def bucket(self, region: Callable[[], str], account: Callable[[], str]) -> Bucket:
        """The server's bucket of the region: jobs of one name in two regions differ in payload."""
        return Bucket(
            name=LOCAL_BUCKET if self._region == LOCAL_REGION else f"{LOCAL_BUCKET}-{self._region}"
        )

    def data_root(self, bucket_root: str) -> str:
        """Return a folder of the home: the server keeps S3 in memory, so large things are files."""
        folder = self._home / "data"
        # No project has an @ in its name.
        return uri_of(folder if self._region == LOCAL_REGION else folder / f"@{self._region}")

    @property
    def clock(self) -> Clock:
        """The server's clock, which a scenario may speed up; starts the server if none answers."""
        return ensure_server(self._home).clock

    @property
    def lists_quotas(self) -> bool:
        """True with a scenario.

        Otherwise the server has neither quotas nor prices, and is not started to ask for them.
        """
        return scenario_file(self._home).exists()

    @property
    def lists_prices(self) -> bool:
        return self.lists_quotas

    def resolve(self, request: JobRequest, region: Callable[[], str]) -> tuple[Target, str]:
        """Return the target as it is, unless this Python lacks a package of the workload.

        Instances use this Python.
        """
        if self._target.instance_kind != "docker":
            required = {name_of(line) for line in request.requirements}
            for package in request.packages:
                extra = EXTRAS.get(package)
                is_missing = (
                    importlib.util.find_spec(package) is None
                    and package.replace("_", "-") not in required
                )
                # Each job would download gigabytes, torch for example, for itself alone.
                if extra is not None and is_missing:
                    raise MissingDependency(
                        f"{request.workload.label} needs the package {package!r}, "
                        f"which this Python lacks: python3 -m pip install 'raysm[{extra}]'"
                    )
        return self._target, ""

    def make_client(self, name: str) -> Any:
        import boto3

        if self._session is None:
            core = settingless_session()
            core.register_component("data_loader", loader())
            keys = {"aws_access_key_id": "raysm", "aws_secret_access_key": "raysm"}
            self._session = boto3.Session(region_name=self._region, botocore_session=core, **keys)
        config = client_options(
            repeats=self.repeats or name != "sagemaker",
            proxies={},  # a proxy for the internet does not know this machine's sockets
            s3={"addressing_style": "path"},
        )
        client = self._session.client(name, endpoint_url=ADDRESS, config=config)
        send_through(client, functools.partial(own_socket.connect, self._find_server()))
        return client

    def connect(self, timeout_s: float | None) -> socket.socket:
        """Return a connection to the server, which is started if none answers."""
        return own_socket.connect(self._find_server(), timeout_s)

    def _find_server(self) -> str:
        if self._socket is None:
            self._socket = ensure_server(self._home).socket
        return self._socket

    def reconnect(self, error: Exception, *, is_followed: bool = False) -> bool:
        """Return True if the server is gone: it ends when idle, and is then started again."""
        from botocore.exceptions import EndpointConnectionError

        if not isinstance(error, EndpointConnectionError):
            return False
        # A server with a job does not end by itself: a user shut it down, and it removed its
        # record. A killed server leaves its record, and is started again to report what became of
        # the job.
        if is_followed and ServerRecord.read(self._home) is None:
            raise ServiceError(
                f"the embedded SageMaker of {self._home} was ended, and its jobs with it; "
                "the next command starts it again: raysm jobs shows how they ended"
            )
        self._socket = None
        return True

    def wait_for_end(self, job: str, pause_s: float, most_s: float) -> None:
        if self._ask(f"/raysm/jobs/{self._region}/{job}/end", most_s).get("ended") is None:
            time.sleep(min(pause_s, most_s))

    def wait_for_change(self, job: str, seen: int, pause_s: float, most_s: float) -> int:
        began_s = time.monotonic()
        answer = self._ask(f"/raysm/jobs/{self._region}/{job}/change/{seen}", most_s)
        changes = answer.get("changes")
        if answer and changes is None and seen:
            # It has just ended: look at once, and only once.
            return 0
        # A look takes several calls: a job that writes all the time is not looked at all the time.
        least_s = min(pause_s if changes is None else self.polling.first_s, most_s)
        time.sleep(max(0.0, began_s + least_s - time.monotonic()))
        return seen if changes is None else int(changes)

    def _ask(self, path: str, most_s: float) -> dict[str, Any]:
        """Ask the server by a long poll; the result is empty if it cannot tell."""
        poll_s = int(min(LONG_POLL_S, most_s))
        if self._socket is None or poll_s < 1:
            return {}
        connect = functools.partial(own_socket.connect, self._socket)
        return get_json(connect, f"{path}/{poll_s}", timeout_s=poll_s + 5.0) or {}


@atexit.register
def _forget_servers() -> None:
    # A server outlives this process on purpose: without a returncode, Popen warns of a leaked
    # process.
    for process in _started:
        if process.poll() is None:
            process.returncode = 0


def ensure_server(
    home: Path, *, command: tuple[str, ...] = (sys.executable, "-m", "raysm.local.server")
) -> ServerRecord:
    server = find_server(home)
    if server is None:
        missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
        if missing:
            raise MissingDependency(
                f"the embedded SageMaker needs the package {missing[0]!r}: "
                "python3 -m pip install 'raysm[local]'"
            )
        server = _start(home, command)
    if server.version != __version__ or not server.socket:
        raise ServiceError(
            f"the embedded SageMaker of {home} is raysm {server.version}, "
            f"and this is {__version__}: end it with raysm local down, and try again"
        )
    return server


def find_server(home: Path) -> ServerRecord | None:
    record = ServerRecord.read(home)
    status = None if record is None else _status(record)
    if (
        record is None
        or status is None
        or (status.get("pid"), status.get("started_s")) != (record.pid, record.started_s)
    ):
        return None
    # A killed server leaves its record, and another program may have its port: the lock lives as
    # long as the server. Checked last, because no server can start while the check holds the lock.
    return record if is_server_locked(home) else None


def active_jobs(record: ServerRecord) -> list[str]:
    names = (_status(record) or {}).get("running")
    return [str(name) for name in names] if isinstance(names, list) else []


def _status(record: ServerRecord) -> "dict[str, Any] | None":
    return get_json(_way_to(record), "/raysm/status", timeout_s=5.0)


def _way_to(record: ServerRecord) -> Connect:
    if record.socket:
        return functools.partial(own_socket.connect, record.socket)
    # An older server has only its port. It must be found, to report its version and to be ended.
    from raysm.core.protocol.connections import connect_to_own

    return lambda timeout_s: connect_to_own("127.0.0.1", record.port, timeout_s)


def get_json(connect: Connect, path: str, *, timeout_s: float) -> "dict[str, Any] | None":
    connection = CheckedConnection(connect, timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        answer = json.loads(response.read(MAX_BYTES))
        return answer if response.status == 200 and isinstance(answer, dict) else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _start(home: Path, command: tuple[str, ...]) -> ServerRecord:
    log = log_file(home)
    try:
        private_folder(home)
        log.touch(mode=0o600)
    except OSError as error:
        raise unusable(home, error) from error
    deadline_s = time.monotonic() + START_S
    was_restarted = False
    begin, process = _launch(home, command, log)
    while time.monotonic() < deadline_s:
        # Polled before the record is read: if this server lost the race, the winner's record is
        # there or comes soon.
        ended = process.poll() is not None
        record = find_server(home)
        if record is not None:
            return record
        if ended and not is_server_locked(home) and not was_restarted:
            # Another server, which was just ending, may have held the lock.
            begin, process = _launch(home, command, log)
            was_restarted = True
        elif ended and not is_server_locked(home):
            raise ServiceError(
                f"the embedded SageMaker ended with {process.returncode}; "
                f"its log {log} says:\n{_tail(log, begin)}"
            )
        time.sleep(0.05)
    raise ServiceError(
        f"the embedded SageMaker did not answer within {START_S:.0f} s; "
        f"its log {log} says:\n{_tail(log, begin)}"
    )


def _launch(
    home: Path, command: tuple[str, ...], log: Path
) -> "tuple[int, subprocess.Popen[bytes]]":
    """Start a server; return the offset at which its log begins, and its process."""
    _started[:] = [process for process in _started if process.poll() is None]
    with log.open("ab") as output:
        begin = output.tell()
        process = subprocess.Popen(
            [*command, "--home", str(home)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # -m puts the working folder first on sys.path: the caller's may contain a flask.py.
            cwd=home,
            start_new_session=True,  # so that Ctrl-C in this terminal does not reach it
        )
    _started.append(process)
    return begin, process


def is_server_locked(home: Path) -> bool:
    """Return True if a server of ``home`` lives, even if it does not answer yet."""
    try:
        import fcntl
    except ImportError:  # Windows: the deadline decides
        return True
    try:
        with lock_file(home).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError as error:
        # Whoever takes it for locked waits for a server that may not be there.
        raise unusable(home, error) from error
    return False


def _tail(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        return file.read()[-2000:].decode(errors="replace").strip() or "nothing"
