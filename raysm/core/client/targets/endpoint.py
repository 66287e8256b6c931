"""Find the embedded SageMaker of a home, or start it: a process that outlives this one.

If two clients start it at once, both find the one that got its lock.
"""

import atexit
import functools
import http.client
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from raysm import __version__
from raysm.core.client.targets.checked_http import CheckedConnection, Connect
from raysm.core.protocol import own_socket
from raysm.core.protocol.home import ServerRecord, lock_file, log_file, private_folder, unusable
from raysm.errors import MissingDependency, ServiceError

START_S = 60.0
MAX_BYTES = 1 << 20
"""Limit of an answer."""

NEEDS = ("moto", "flask", "psutil")
"""Packages of the extra ``local`` without which the server does not start."""

_started: list["subprocess.Popen[bytes]"] = []
"""Servers that this process started, kept so that they are reaped."""


@atexit.register
def _forget_servers() -> None:
    # A server outlives this process on purpose: without a returncode, Popen warns of a leaked
    # process.
    for process in _started:
        if process.poll() is None:
            process.returncode = 0


def ensure(
    home: Path, *, command: tuple[str, ...] = (sys.executable, "-m", "raysm.local.server")
) -> ServerRecord:
    server = answering(home)
    if server is None:
        missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
        if missing:
            raise MissingDependency(
                f"the embedded SageMaker needs the package {missing[0]!r}: python3 -m pip install 'raysm[local]'"
            )
        server = _start(home, command)
    if server.version != __version__ or not server.socket:
        raise ServiceError(
            f"the embedded SageMaker of {home} is raysm {server.version}, and this is {__version__}: end it with "
            "raysm local down, and try again"
        )
    return server


def answering(home: Path) -> ServerRecord | None:
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
    return record if is_locked(home) else None


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
    deadline_s, was_restarted = time.monotonic() + START_S, False
    begin, process = _launch(home, command, log)
    while time.monotonic() < deadline_s:
        # Polled before the record is read: if this server lost the race, the winner's record is
        # there or comes soon.
        ended = process.poll() is not None
        record = answering(home)
        if record is not None:
            return record
        if ended and not is_locked(home) and not was_restarted:
            # Another server, which was just ending, may have held the lock.
            (begin, process), was_restarted = _launch(home, command, log), True
        elif ended and not is_locked(home):
            raise ServiceError(
                f"the embedded SageMaker ended with {process.returncode}; its log {log} says:\n{_tail(log, begin)}"
            )
        time.sleep(0.05)
    raise ServiceError(
        f"the embedded SageMaker did not answer within {START_S:.0f} s; its log {log} says:\n{_tail(log, begin)}"
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


def is_locked(home: Path) -> bool:
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
