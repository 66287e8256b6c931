"""The server process: one for each home, which other processes find by its record, and which ends when it is idle."""

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from raysm import __version__
from raysm.contract.home import Clock, ServerRecord, lock_file, scenario_file, sdk_config_file
from raysm.contract.machine import let_others_first
from raysm.contract.store import put
from raysm.errors import InvalidRequest
from raysm.local.job_spec import REGION
from raysm.local.scenario import read
from raysm.local.server import s3_snapshot
from raysm.local.server.app import App
from raysm.local.server.batch.service import BatchService
from raysm.local.server.console import Console, Entering
from raysm.local.server.cores import Cores
from raysm.local.server.faults import Faults
from raysm.local.server.http_server import HttpServer
from raysm.local.server.log_service import LogService
from raysm.local.server.market import MarketService, Stock
from raysm.local.server.moto_internals import ACCOUNT
from raysm.local.server.moto_services import MotoServices
from raysm.local.server.objects import Objects
from raysm.local.server.operations import Operations
from raysm.local.server.records import RecordFiles, Records
from raysm.local.server.services import Services
from raysm.local.server.warm_pools import WarmPools, terminated

__all__ = ["Options", "serve"]

LOST = "InternalServerError: the embedded SageMaker that ran the job was killed; its instances ended with it"
LOOK_S = 0.5
LOG = logging.getLogger(__name__)

SDK_CONFIG = f"""\
# Written by raysm. With this file's path in SAGEMAKER_USER_CONFIG_OVERRIDE, and AWS_ENDPOINT_URL, the SageMaker SDK
# works here: without it, it would ask AWS itself for its default bucket's name, and send usage data.
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
    """How to serve."""

    home: Path
    """Everything of the server lies there."""
    idle_s: float = 900.0
    """Seconds without a job and without a request after which it ends."""
    port: int = 0
    """On 127.0.0.1; 0 is any that is free."""
    instance_kind: str = "process"
    """Instances of jobs that do not say what theirs are."""
    cores: int = 1
    """How many instances run at a time."""
    stop_grace_s: float = 120.0
    """Seconds from SIGTERM to SIGKILL."""


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[int]:
    """Hold the lock of ``home``; yield its descriptor."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Closed on exec: an instance that is still ending would hold the lock of a server that is gone.
    handle = os.open(lock_file(home), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # A lock, not a file with a pid: the kernel frees it however the process ends, and a pid is soon another's.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise InvalidRequest(f"a server of {home} runs already (see {home / 'server.json'})") from None
    try:
        yield handle
    finally:
        os.close(handle)


def _is_there(home: Path, lock: int) -> bool:
    """Whether ``home`` is still the folder that this server locked: it may have been deleted, or made anew."""
    try:
        return os.path.samestat(os.stat(lock_file(home)), os.fstat(lock))
    except OSError:
        return False


def _close_to_others(home: Path) -> None:
    """Keep tokens, data and models to this user, also where the home was there before and is open to all.

    By the folders above them, not by a umask: inside an instance's own folders modes are what SageMaker's are.
    """
    for name in ("jobs", "data", "s3"):
        (home / name).mkdir(exist_ok=True)
        (home / name).chmod(0o700)


def serve(options: Options) -> None:
    """Serve until told to end, or idle.

    Raises:
        InvalidRequest: A server of this home runs already, or its scenario says what there is not.
    """
    with _locked(options.home) as lock:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        _close_to_others(options.home)
        if os.getsid(0) == os.getpid():  # not the terminal of one who looks on; instances are sessions of their own
            let_others_first()
        scenario = read(scenario_file(options.home))
        # Only a server that was killed leaves one: whoever holds the lock is the only server.
        ServerRecord.remove(options.home)
        ending = threading.Event()
        started_s = time.time()
        clock = Clock(speed=scenario.speed, begun_s=started_s)
        records = Records(options.home, clock)
        # Before anybody is answered: a job that nobody runs must not be seen as InProgress.
        _recover(records)
        s3_snapshot.restore(options.home)
        moto = MotoServices()
        cores = Cores(options.cores)
        services = Services(
            records=records,
            moto=moto,
            objects=Objects(moto, options.home / "data"),
            cores=cores,
            pools=WarmPools(records),
            stock=Stock(scenario, records),
            stop_grace_s=options.stop_grace_s,
            scenario=scenario,
            chance=scenario.chance(),
        )
        operations = Operations(services, options.instance_kind)
        console = Console(operations, cores, started_s=started_s, shut_down=ending.set)
        entering = Entering(records, operations.instances, is_permitted=scenario.ssm.permitted)
        faults = Faults(scenario, services.chance, clock)
        market = MarketService(scenario)
        batch = BatchService(options.home, clock, moto)
        app = App(operations, LogService(records), console, moto, faults, entering, market, batch)
        server = HttpServer(options.port, app)
        # Only noted: a handler interrupts this thread also while it holds a lock that the end has to take.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: ending.set())
        try:
            record = ServerRecord(
                pid=os.getpid(),
                port=server.server_port,
                started_s=started_s,
                version=__version__,
                log_late_s=scenario.logs.late_s,
                speed=scenario.speed,
            )
            batch.jobs.url = record.url
            busy = lambda: bool(operations.running() or batch.running or app.answering)  # noqa: E731
            _listen(server, app, busy, options, ending, record, lock, records.files)
        finally:
            if _is_there(options.home, lock):
                # First of all: whoever looks for a server from now on is not to find one that ends.
                ServerRecord.remove(options.home)
            batch.shut_down()
            operations.shut_down()
            services.timers.close()
            services.pools.close()
            server.shutdown()
            server.server_close()
            if _is_there(options.home, lock):
                records.files.retry()
                for title in records.files.unwritten():
                    LOG.error("the record of the %s could not be written; the next server will not know its end", title)
                # Last: jobs and answers in flight may still have put something.
                s3_snapshot.save(options.home, records.all())


def _listen(
    server: HttpServer,
    app: App,
    busy: Callable[[], bool],
    options: Options,
    ending: threading.Event,
    record: ServerRecord,
    lock: int,
    files: RecordFiles,
) -> None:
    # The loop looks only so often whether it is to end: its own 0.5 s would be added to every shutdown.
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="server", daemon=True).start()
    # Before the record: who finds the server finds this too.
    put(sdk_config_file(options.home), SDK_CONFIG, within=options.home)
    record.write(options.home)
    last_job_s = time.monotonic()
    while not ending.wait(LOOK_S):
        now = time.monotonic()
        if busy():
            last_job_s = now
        if now - max(last_job_s, app.last_request_s) > options.idle_s:
            return
        if not _is_there(options.home, lock):  # nobody could find this server any more, nor end its jobs
            LOG.warning("the home %s was deleted: its server ends, and its jobs with it", options.home)
            return
        files.retry()


def _recover(records: Records) -> None:
    """Say of the jobs that a killed server left what became of them, and remove what their instances left."""
    for record in records.all():
        if not record.final:
            records.advance(
                record,
                "Failed",
                f"{record.api.title} job failed",
                status="Failed",
                failure_reason=LOST,
                ended_s=records.clock.now(),
            )
        # Also of those that had just ended: the server may have been killed before it came to that.
        for name in ("work", "warm"):
            shutil.rmtree(records.folder(record.api, record.name, record.region) / name, ignore_errors=True)
        if record.warm_pool is not None:
            records.update(record.api, record.name, record.region, warm_pool=terminated(record.warm_pool))
