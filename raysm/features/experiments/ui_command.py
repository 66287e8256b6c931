"""The command ``raysm ui``: show jobs, trials, calls and rows of grids in MLflow's own pages.

They are copied into the tables of a local MLflow store, an SQLite file. MLflow's client takes
several times as long, because it writes each run in several transactions
(``tests/benchmarks/experiments.py --mlflow``). A test reads the runs back by MLflow's client.
"""

import contextlib
import hashlib
import importlib.util
import json
import logging
import math
import os
import pkgutil
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import service_to_read
from raysm.cli.interrupts import interruptible
from raysm.cli.page import Browse, show_page
from raysm.core import features
from raysm.core.client.job.description import Status
from raysm.core.client.job.experiment import Curve, Experiment
from raysm.core.client.service import Service
from raysm.core.client.views.server import LocalServer, check_aiohttp, relaying
from raysm.core.protocol.home import private_folder
from raysm.core.protocol.job_api import api_of
from raysm.core.request.workload import takes_calls
from raysm.errors import MissingDependency, RaysmError
from raysm.features.experiments import group_with_parent
from raysm.features.experiments.listing import (
    Choice,
    experiments,
    open_cache,
    read_job,
    with_trials,
)
from raysm.features.experiments.mirror import JOB_TAG, legal_name

VERSION = "1"
"""The format of the copies; runs of another version are written again."""
DIGEST_TAG = "raysm.digest"
NO_PROJECT = "jobs of no project"
MAX_TEXT = 6_000
"""MLflow's own limit of a parameter's value."""
BUSY_S = 30.0
START_S = 120.0
END_S = 5.0
UPDATE_S = 15.0

STATUS = {Status.COMPLETED: "FINISHED", Status.FAILED: "FAILED", Status.STOPPED: "KILLED"}
STATUS |= dict.fromkeys((Status.IN_PROGRESS, Status.STOPPING), "RUNNING")

# MLflow compiles schemas and draws in workers. It loads nothing from other sites and sends them no
# telemetry.
POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; worker-src 'self' blob:; "
    "object-src 'none'; "
    "base-uri 'none'"
)

SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # its jobs evaluate language models
}


def run(
    arguments: Arguments,
    console: Console,
    service: Service | None = None,
    *,
    browse: Browse = webbrowser.open,
    wait: Callable[[], object] | None = None,
) -> None:
    """Copy all jobs into a local MLflow store, and serve MLflow's pages until Ctrl-C."""
    check_mlflow()
    service = service or service_to_read(arguments)
    store = MlflowStore(service.home / "mlflow")
    errors = Console(stderr=True)

    def update() -> None:
        # The next update reads what a failed one missed.
        while not ended.wait(UPDATE_S):
            try:
                store.update(records(service, arguments.limit))
            except (RaysmError, OSError) as error:
                errors.print(Text(f"raysm: the jobs cannot be read now: {error}"), soft_wrap=True)

    began_s = time.monotonic()
    found = records(service, arguments.limit)
    count = store.update(found)
    said = (
        f"{len(found):,} runs, {count:,} of them new or changed, in "
        f"{time.monotonic() - began_s:.1f} s"
    )
    errors.print(f"{said}; starting MLflow", highlight=False)
    ended = threading.Event()
    with interruptible() as interrupts, open_mlflow(store) as url:
        interrupts.raise_if_lost()
        thread = threading.Thread(target=update, daemon=True, name="raysm ui")
        thread.start()
        try:
            show_page(arguments, console, service, url, browse, wait or threading.Event().wait)
        finally:
            ended.set()
            thread.join()


def check_mlflow() -> None:
    # mlflow-skinny has the module too, but neither pages nor SQLAlchemy.
    if any(importlib.util.find_spec(name) is None for name in ("mlflow", "sqlalchemy", "flask")):
        raise MissingDependency("raysm ui needs MLflow: python3 -m pip install 'raysm[mlflow]'")
    check_aiohttp()


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    row: Experiment
    job: str
    """The name of the job in raysm's commands; for a trial or a call, the name of its sweep or
    session."""
    curves: Callable[[], Mapping[str, Curve]] = dict
    """Reads the curves; called only if the run is new or has changed."""
    where: str = ""
    """The options of raysm's commands that find the job."""

    @property
    def run_id(self) -> str:
        return _run_id(self.row.name)

    @property
    def digest(self) -> str:
        """A hash of the row and of ``VERSION``.

        If it differs from MLflow's copy, the run is written again.
        """
        return hashlib.sha256(f"{VERSION} {self.row.as_json()}".encode()).hexdigest()[:32]


def records(service: Service, limit: int = 1000) -> list[Record]:
    """Return the latest jobs with the trials of sweeps, and the latest rows of each grid.

    ``limit`` applies to both.
    """
    jobs = with_trials(service, experiments(service, Choice(limit=limit)))
    of_calls = {job.arn.rpartition("/")[0] for job in jobs if _is_call(job)}
    rows: dict[str, Experiment] = {}
    for path in features.all_paths("rows").values():
        rows |= {row.name: row for row in pkgutil.resolve_name(path)(None, limit)}
    found = []
    for job in jobs:
        # A row of a grid and its job are one run, with the columns of both.
        of_grid = rows.pop(job.name, None)
        if of_grid is not None:
            both = {**of_grid.parameters, **job.parameters}
            job = replace(job, parameters=both, project=of_grid.project, task=of_grid.task)
        # One curve of all calls would jump between them.
        job = replace(job, metrics={}) if job.arn in of_calls else job
        is_trial = job.trial is not None
        name = job.name.rpartition("/")[0] if is_trial else job.name
        # The log has only the last values of a trial.
        curves = (
            _curves(service, job, name) if job.metrics and (not is_trial or _is_call(job)) else dict
        )
        found.append(
            Record(row=job, job=name, curves=curves, where=_where(service, service.region))
        )
    # The remaining rows belong to jobs of other regions and accounts.
    other = [(row, _where(service, row.parameters["region"])) for row in rows.values()]
    return found + [Record(row=row, job=row.name, where=where) for row, where in other]


def _where(service: Service, region: object) -> str:
    if not service.target.is_billed:
        return ""
    profile = getattr(service.target, "profile", None)
    return f" --on aws --region {region}" + (
        f" --profile {shlex.quote(profile)}" if profile else ""
    )


def _is_call(row: Experiment) -> bool:
    return row.trial is not None and takes_calls(row.workload)


def _curves(service: Service, row: Experiment, job: str) -> Callable[[], Mapping[str, Curve]]:
    def read() -> Mapping[str, Curve]:
        call = row.arn if _is_call(row) else None
        arn = row.arn if call is None else row.arn.rpartition("/")[0]
        cached = open_cache(service).curves(arn, row.metrics, call)
        # A call may have ended in a session that still runs, which is not cached.
        if cached or (row.ended_s is not None and call is None):
            return cached
        reading = read_job(service, api_of(row.kind), job)
        if reading is None:
            return {}
        return reading.curves if call is None else reading.call_curves.get(call, {})

    return read


class MlflowStore:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "mlflow.db"
        self.uri = f"sqlite:///{self._file}"

    def update(self, found: Iterable[Record]) -> int:
        """Write the runs that are new or have changed; return how many.

        A run that the user deleted in MLflow stays deleted, and tags, notes and names that the user
        gave stay.
        """
        present = self._digests()
        changed = [record for record in found if present.get(record.run_id) != record.digest]
        if changed or not self._file.exists():
            names = {record.row.project or NO_PROJECT for record in changed}
            experiments = self._experiments(names)
            with self._opened() as database:
                for record in changed:
                    experiment, artifacts = experiments[record.row.project or NO_PROJECT]
                    self._write(database, record, experiment, artifacts)
        return len(changed)

    def _digests(self) -> dict[str, str]:
        if not self._file.exists():
            return {}
        # By sqlite3: importing MLflow takes seconds, and is only needed if something has changed.
        with self._opened() as database, contextlib.suppress(sqlite3.OperationalError):
            return dict(
                database.execute(
                    "SELECT run_uuid, value FROM tags WHERE key = ?", (DIGEST_TAG,)
                ).fetchall()
            )
        return {}

    def _experiments(self, names: Iterable[str]) -> dict[str, tuple[int, str]]:
        from mlflow import MlflowClient

        private_folder(self._folder.parent, self._folder.name)
        # Otherwise MLflow logs a line for each migration of the file.
        for logger in ("alembic", "mlflow.store.db.utils"):
            logging.getLogger(logger).setLevel(logging.WARNING)
        client = MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)
        client.search_experiments(max_results=1)
        with self._opened() as database:
            rows = database.execute(
                "SELECT name, experiment_id, artifact_location FROM experiments"
            ).fetchall()
        existing = {name: (number, artifacts) for name, number, artifacts in rows}
        for name in names:
            if name not in existing:
                artifacts = (self._folder / "artifacts" / _run_id(name)).as_uri()
                # Without this tag MLflow's pages treat the runs as those of language models.
                tags = {"mlflow.experimentKind": "custom_model_development"}
                existing[name] = (
                    int(client.create_experiment(name, artifact_location=artifacts, tags=tags)),
                    artifacts,
                )
        return existing

    def _write(
        self, database: sqlite3.Connection, record: Record, experiment: int, artifacts: str
    ) -> None:
        row = record.row
        run = record.run_id
        begin_s = row.started_s or row.created_s
        end_ms = None if row.ended_s is None else int(row.ended_s * 1000)
        uri = f"{artifacts}/{run}/artifacts"
        database.execute(
            "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, "
            "user_id, status, start_time,"
            " end_time, source_version, lifecycle_stage, artifact_uri, experiment_id)"
            " VALUES (?, ?, 'JOB', 'raysm', '', '', ?, ?, ?, '', 'active', ?, ?)"
            " ON CONFLICT (run_uuid) DO UPDATE SET status = excluded.status, start_time = "
            "excluded.start_time,"
            " end_time = excluded.end_time",
            (
                run,
                row.name,
                STATUS.get(row.status, "SCHEDULED"),
                int(begin_s * 1000),
                end_ms,
                uri,
                experiment,
            ),
        )
        for table in ("metrics", "latest_metrics", "params"):
            database.execute(f"DELETE FROM {table} WHERE run_uuid = ?", (run,))
        params = {legal_name(name): str(value)[:MAX_TEXT] for name, value in row.parameters.items()}
        database.executemany(
            "INSERT INTO params (run_uuid, key, value) VALUES (?, ?, ?)",
            [(run, *item) for item in params.items()],
        )
        points = [(run, *point) for point in _points(row, record.curves())]
        columns = "(run_uuid, key, value, timestamp, step, is_nan) VALUES (?, ?, ?, ?, ?, ?)"
        database.executemany(f"INSERT OR IGNORE INTO metrics {columns}", points)
        # The last point of each metric.
        database.executemany(
            f"INSERT OR REPLACE INTO latest_metrics {columns}",
            {each[1]: each for each in points}.values(),
        )
        own = "INSERT OR REPLACE INTO tags (run_uuid, key, value) VALUES (?, ?, ?)"
        database.executemany(
            own, [(run, key, value) for key, value in _tags(record).items() if value]
        )
        # Only inserted, because the user may have changed them in MLflow.
        editable = {"mlflow.runName": row.name, "mlflow.note.content": _note(record)}
        database.executemany(
            "INSERT OR IGNORE INTO tags (run_uuid, key, value) VALUES (?, ?, ?)",
            [(run, *tag) for tag in editable.items()],
        )
        folder = self._folder / "artifacts" / artifacts.rpartition("/")[2] / run / "artifacts"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.json").write_text(json.dumps(row.as_dict(), indent=1) + "\n")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self._file, timeout=BUSY_S)) as database, database:
            yield database


def _run_id(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def _points(
    row: Experiment, curves: Mapping[str, Curve]
) -> Iterator[tuple[str, float, int, int, bool]]:
    """Yield (name, value, milliseconds since 1970, step, is NaN) for each value, in order."""
    end_s = row.ended_s or row.started_s or row.created_s
    known: dict[str, Sequence[tuple[int | None, float, float]]] = {
        name: [(summary.step, end_s, summary.last)] for name, summary in row.metrics.items()
    }
    facts = {"duration_s": row.duration_s, "cost_usd": row.cost_usd}
    known |= {
        name: [(None, end_s, value)]
        for name, value in facts.items()
        if value is not None and name not in known
    }
    for name, curve in {**known, **curves}.items():
        for number, (step, time_s, value) in enumerate(curve):
            is_nan = math.isnan(value)
            # MLflow stores NaN as 0 with a flag, and an infinity as the largest float.
            stored = 0.0 if is_nan else max(-sys.float_info.max, min(sys.float_info.max, value))
            yield (
                legal_name(name),
                stored,
                int(time_s * 1000),
                number if step is None else step,
                is_nan,
            )


def _tags(record: Record) -> dict[str, str]:
    row = record.row
    tags = {
        DIGEST_TAG: record.digest,
        JOB_TAG: record.job,
        "mlflow.source.name": f"raysm {row.workload or row.kind}",
        "mlflow.source.type": "JOB",
        "mlflow.parentRunId": "" if row.trial is None else _run_id(record.job),
        "raysm.status": str(row.status),
        "raysm.message": row.message,
        "raysm.task": row.task or "",
        "raysm.workload": row.workload or "",
        "raysm.instances": " + ".join(f"{count} x {kind}" for kind, count in row.instances),
        "raysm.code": row.code,
        "raysm.image": row.image,
    }
    return {name: value[:MAX_TEXT] for name, value in tags.items()}


def _note(record: Record) -> str:
    row = record.row
    job = f"{shlex.quote(record.job)}{record.where}"
    result = f"raysm result {job} --output DIR", "its result"
    if takes_calls(row.workload):
        result = f"raysm session attach {job}", "its session, while it runs"
    elif not row.arn and row.project and row.task:  # known from its grid alone
        result = (
            f"raysm grid result {shlex.quote(row.project)} {shlex.quote(row.task)} --output DIR",
            "its result",
        )
    commands = (
        (f"raysm logs {job}", "what it wrote"),
        result,
        (f"raysm metrics {job} --all", "its metrics and those of its instances"),
        (f"raysm dashboard {job}", "Ray's dashboard, while it runs"),
    )
    width = max(len(command) for command, _ in commands)
    return "\n".join(
        ["```", *(f"{command:{width}}  # {text}" for command, text in commands), "```"]
    )


@contextlib.contextmanager
def open_mlflow(store: MlflowStore) -> Iterator[str]:
    """Serve MLflow's pages at a secret address of this machine while the block runs.

    Yield the address.
    """
    with contextlib.ExitStack() as stack:
        # A short path: that of a Unix socket has at most 107 bytes.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raysm-")))
        socket_path = folder / "socket"
        with (folder / "log").open("wb") as log:
            command = [
                sys.executable,
                "-m",
                "mlflow",
                "server",
                "--workers",
                "1",
                "--backend-store-uri",
                store.uri,
            ]
            command += ["--uvicorn-opts", f"--uds {shlex.quote(str(socket_path))}"]
            process = subprocess.Popen(
                group_with_parent.wrap(command),
                cwd=folder,
                # The environment may have MLflow's own settings.
                env={**os.environ, **SETTINGS},  # noqa: TID251
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # So that Ctrl-C reaches only this process, which then ends MLflow and its children.
                start_new_session=True,
            )
        stack.callback(_end, process)
        _wait_until_open(process, socket_path, folder / "log")

        server = LocalServer(
            partial(relaying, str(socket_path), lambda: "http://localhost/"), policy=POLICY
        )
        stack.callback(server.close)
        yield server.url


def _wait_until_open(process: "subprocess.Popen[bytes]", socket_path: Path, log: Path) -> None:
    deadline_s = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline_s:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(socket_path))
            return
        time.sleep(0.1)
    lines = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    raise RaysmError(f"MLflow's server has not started; its last lines:\n{lines}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin is not None:
        process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
            return
