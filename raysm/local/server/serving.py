"""The server process: one for each home. Clients find it by its record; it ends when it is idle.

It listens on TCP and on a Unix socket, with a thread for each connection, and takes connections of
this user alone.
"""

import contextlib
import fcntl
import logging
import os
import resource
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from raysm import __version__
from raysm.core.protocol import own_socket
from raysm.core.protocol.callers import LOOPBACK, is_from_our_user, refusal, refuse
from raysm.core.protocol.home import (
    Clock,
    ServerRecord,
    file_systems_folder,
    lock_file,
    private_folder,
    scenario_file,
    sdk_config_file,
)
from raysm.core.protocol.store import put
from raysm.errors import InvalidRequest
from raysm.local.job_spec import REGION
from raysm.local.scenario import read
from raysm.local.server.app import App
from raysm.local.server.batch import BatchService
from raysm.local.server.console import Console, RemoteAccess
from raysm.local.server.faults import Faults
from raysm.local.server.log_service import LogService
from raysm.local.server.market import MarketService, Stock
from raysm.local.server.moto_services import ACCOUNT, MotoServices, restore_buckets, save_buckets
from raysm.local.server.objects import Objects
from raysm.local.server.operations import Operations
from raysm.local.server.records import Records
from raysm.local.server.services import Cores, Services
from raysm.local.server.stop_request import StopRequest

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

HEADERS_S = 20.0
QUEUE = 1024
"""Connections that wait until they are accepted: on a Unix socket a client cannot wait for room in
the queue."""
MAX_FILES = 65536
"""Soft limit of open files: each job and each waiting client needs some."""

REFUSAL = (
    b'{"__type": "AccessDeniedException", "message": "the embedded SageMaker answers only its own '
    b'user"}'
)
REFUSED = refusal(REFUSAL, "application/x-amz-json-1.1")


class _Handler(MotoRequestHandler):  # type: ignore[misc]
    protocol_version = "HTTP/1.1"
    timeout = HEADERS_S

    def parse_request(self) -> bool:
        is_good: bool = super().parse_request()
        self.connection.settimeout(None)
        return is_good

    def log(self, type: str, message: str, *args: object) -> None:
        """Log no request."""


class HttpServer(ThreadedWSGIServer):
    """Answers each request in its own thread, because a request may wait until a job ends.

    Connections of other users are refused at once: silent ones would use up the open files.
    """

    def __init__(
        self, port: int, app: "WSGIApplication", handler: type[WSGIRequestHandler] = _Handler
    ) -> None:
        super().__init__(LOOPBACK, port, app, handler)
        _allow_files(MAX_FILES)

    def verify_request(self, request: object, client_address: object) -> bool:
        """Keep a connection of this user or of root; refuse others."""
        assert isinstance(request, socket.socket)
        if self.is_trusted(request, client_address):
            return True
        refuse(request, REFUSED)
        return False

    def is_trusted(self, connection: socket.socket, client: object) -> bool:
        assert isinstance(client, tuple)
        return is_from_our_user(client, self.server_port)


class UnixHttpServer(HttpServer):
    """The same on a Unix socket, which raysm's own clients use.

    Clients of a Unix socket can check who listens.
    """

    def __init__(
        self,
        listener: socket.socket,
        app: "WSGIApplication",
        handler: type[WSGIRequestHandler] = _Handler,
    ) -> None:
        # werkzeug makes a copy of the socket. With a path it would make one, and exit if that
        # fails.
        ThreadedWSGIServer.__init__(self, "unix://", 0, app, handler, fd=listener.fileno())
        _allow_files(MAX_FILES)

    def is_trusted(self, connection: socket.socket, client: object) -> bool:
        return own_socket.is_trusted(own_socket.peer_user(connection))


@contextlib.contextmanager
def unix_listener(folder: Path, name: str) -> Iterator[tuple[socket.socket, Path]]:
    """Yield a listening Unix socket to which only this user may connect, and its path.

    The path is in ``folder``, or in a temporary folder if that has a path of more than about 100
    bytes, or lies in a file system without sockets.
    """
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        path = folder / name
        try:
            listener.bind(str(path))
        except OSError:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raysm-")), name)
            listener.bind(str(path))
        stack.callback(path.unlink, missing_ok=True)
        # Before it listens, so that no other user is in its queue.
        path.chmod(0o600)
        listener.listen(QUEUE)
        yield listener, path


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


LOST = (
    "InternalServerError: the embedded SageMaker that ran the job was killed; its instances ended "
    "with it"
)
POLL_S = 0.5
LOG = logging.getLogger(__name__)

SDK_CONFIG = f"""\
# Written by raysm. The SageMaker SDK works here with this file's path in
# SAGEMAKER_USER_CONFIG_OVERRIDE, and with AWS_ENDPOINT_URL. Otherwise it would ask AWS for the name
# of its default bucket, and send usage data.
SchemaVersion: "1.0"
SageMaker:
  PythonSDK:
    Modules:
      TelemetryOptOut: true
      Session:
        DefaultS3Bucket: sagemaker-{REGION}-{ACCOUNT}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    home: Path
    idle_s: float = 900.0
    """Seconds without a job and without a request after which the server ends."""
    port: int = 0
    instance_kind: str = "process"
    cores: int = 1
    stop_grace_s: float = 120.0


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[int]:
    private_folder(home)
    # Closed on exec, so that an instance does not hold the lock of a server that is gone.
    handle = os.open(lock_file(home), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # A lock, not a pid in a file, because the kernel frees it however the process ends.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise InvalidRequest(
            f"a server of {home} runs already (see {home / 'server.json'})"
        ) from None
    try:
        yield handle
    finally:
        os.close(handle)


def _is_same_home(home: Path, lock: int) -> bool:
    """Return whether ``home`` is still the folder that this server locked.

    It may have been deleted, and made again.
    """
    try:
        return os.path.samestat(os.stat(lock_file(home)), os.fstat(lock))
    except OSError:
        return False


def serve(options: Options) -> None:
    """Serve until a signal, a shutdown request or the idle limit.

    Raise InvalidRequest if a server runs already.
    """
    with _locked(options.home) as lock, contextlib.ExitStack() as stack:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        # The folders of tokens, data and models; the modes in an instance's folders are
        # SageMaker's.
        for name in ("jobs", "data", "s3"):
            private_folder(options.home, name)
        scenario = read(scenario_file(options.home))
        # A server that was killed leaves its record.
        ServerRecord.remove(options.home)
        for left in options.home.glob("server-*.sock"):
            left.unlink()
        ending = StopRequest()
        started_s = time.time()
        clock = Clock(speed=scenario.speed, begun_s=started_s)
        records = Records(options.home, clock)
        # First, so that no client sees a job of a killed server as InProgress.
        for job in records.all():
            if not job.final:
                records.advance(
                    job,
                    "Failed",
                    f"{job.api.title} job failed",
                    status="Failed",
                    failure_reason=LOST,
                    ended_s=records.clock.now(),
                )
            # Of ended jobs too: a server may have been killed before it removed their folders.
            shutil.rmtree(
                records.folder(job.api, job.name, job.region) / "work", ignore_errors=True
            )
        restore_buckets(options.home)
        moto = MotoServices()
        cores = Cores(options.cores)
        services = Services(
            records=records,
            moto=moto,
            objects=Objects(moto, options.home / "data", file_systems_folder(options.home)),
            cores=cores,
            stock=Stock(scenario, records),
            stop_grace_s=options.stop_grace_s,
            scenario=scenario,
            chance=scenario.chance(),
        )
        operations = Operations(services, options.instance_kind)
        console = Console(operations, cores, started_s=started_s, shut_down=ending.set)
        remote_access = RemoteAccess(
            records, operations.instances, is_permitted=scenario.ssm.permitted
        )
        faults = Faults(scenario, services.chance, clock)
        market = MarketService(scenario)
        batch = BatchService(options.home, clock, moto)
        app = App(
            operations, LogService(records), console, moto, faults, remote_access, market, batch
        )
        # A name of its own, so that a client that has kept it never meets another server, perhaps
        # of another version.
        listener, path = stack.enter_context(
            unix_listener(options.home, f"server-{os.getpid()}.sock")
        )
        servers = HttpServer(options.port, app), UnixHttpServer(listener, app)
        # The handler does nothing else, because this thread may hold a lock when it is interrupted.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: ending.set())
        try:
            record = ServerRecord(
                pid=os.getpid(),
                port=servers[0].server_port,
                started_s=started_s,
                version=__version__,
                speed=scenario.speed,
                # Its name alone in the home, which a container may see at another path.
                socket=path.name if path.parent == options.home else str(path),
            )
            batch.url = record.url

            # The default interval of 0.5 s would be added to every shutdown.
            for server in servers:
                serve_forever = partial(server.serve_forever, poll_interval=0.1)
                threading.Thread(target=serve_forever, name="server", daemon=True).start()
            # Before the record, so that clients find this too.
            put(sdk_config_file(options.home), SDK_CONFIG, mode=0o600, within=options.home)
            record.write(options.home)
            busy_s = time.monotonic()
            while not ending.wait(POLL_S):
                now = time.monotonic()
                if operations.running() or batch.running or app.answering:
                    busy_s = now
                if now - max(busy_s, app.last_request_s) > options.idle_s:
                    break
                # No client could find this server or end its jobs.
                if not _is_same_home(options.home, lock):
                    LOG.warning(
                        "the home %s was deleted: its server ends, and its jobs with it",
                        options.home,
                    )
                    break
                records.retry()
        finally:
            if _is_same_home(options.home, lock):
                # First, so that clients do not find a server that ends.
                ServerRecord.remove(options.home)
            batch.shut_down()
            operations.shut_down()
            services.timers.close()
            for server in servers:
                server.shutdown()
                server.server_close()
            if _is_same_home(options.home, lock):
                records.retry()
                for title in records.unwritten():
                    LOG.error(
                        "the record of the %s could not be written; the next server will not know "
                        "its end",
                        title,
                    )
                # Last, because jobs and answers in flight may put objects.
                save_buckets(options.home, records.all())
