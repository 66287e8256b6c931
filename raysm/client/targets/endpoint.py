"""Find the embedded SageMaker of a home, or start it: a process that outlives this one.

If two clients start it at once, both find the one that got its lock.
"""

import atexit
import http.client
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from raysm import __version__
from raysm.contract.home import ServerRecord, lock_file, log_file
from raysm.errors import InvalidRequest, MissingDependency, ServiceError

__all__ = ["active_jobs", "answering", "ensure", "hear_change", "hear_end", "is_locked"]

START_S = 60.0
"""Seconds until a server that was started has to answer: a loaded machine imports slowly."""

MOST_BYTES = 1 << 20
"""Bytes that are read of what the server says of itself: on its port may be anybody."""

NEEDS = ("moto", "flask", "psutil")
"""Packages of the extra ``local`` without which the server does not start."""

LOST = "runs already"
"""What a server says that ends at its start because another one holds the lock."""

_started: list["subprocess.Popen[bytes]"] = []
"""Servers that this process started: kept so that they are reaped when they end."""


@atexit.register
def _let_go() -> None:
    """A server outlives the process that started it: that is no resource that was forgotten."""
    for process in _started:
        if process.poll() is None:
            process.returncode = 0


def ensure(home: Path, *, command: tuple[str, ...] = (sys.executable, "-m", "raysm.local.server")) -> str:
    """Return the URL of the server of ``home``; start it where none answers.

    Args:
        home: The server's root folder; made where it is not there.
        command: Starts a server, given ``--home``.

    Raises:
        MissingDependency: What the server needs is not installed.
        ServiceError: It does not come up, or is of another version.
    """
    server = answering(home)
    if server is None:
        missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
        if missing:
            raise MissingDependency(
                f"the embedded SageMaker needs the package {missing[0]!r}: python3 -m pip install 'raysm[local]'"
            )
        server = _start(home, command)
    if server.version != __version__:
        raise ServiceError(
            f"the embedded SageMaker of {home} is raysm {server.version}, and this is {__version__}: end it with "
            "raysm local down, and try again"
        )
    return server.url


def answering(home: Path) -> ServerRecord | None:
    """Return the record of the server of ``home`` if it is that very server that answers."""
    record = ServerRecord.read(home)
    # A killed server leaves its record behind, and its port may be another's by now: the lock lives as long as it does.
    # Asked last, because the question holds the lock for a moment, in which no server can start.
    return record if record is not None and _answers(record) and is_locked(home) else None


def _answers(record: ServerRecord) -> bool:
    status = _status(record)
    return status is not None and (status.get("pid"), status.get("started_s")) == (record.pid, record.started_s)


def active_jobs(record: ServerRecord) -> list[str]:
    """Return the names of the jobs of a server that have not ended, in the order in which they were sent."""
    names = (_status(record) or {}).get("running")
    return [str(name) for name in names] if isinstance(names, list) else []


def _status(record: ServerRecord) -> "dict[str, Any] | None":
    connection = http.client.HTTPConnection("127.0.0.1", record.port, timeout=5.0)
    try:
        connection.request("GET", "/raysm/status")
        answer = connection.getresponse()
        status = json.loads(answer.read(MOST_BYTES))
        return status if answer.status == 200 and isinstance(status, dict) else None
    except (OSError, http.client.HTTPException, ValueError):  # another server: it may say anything
        return None
    finally:
        connection.close()


def hear_end(url: str, region: str, name: str, timeout_s: int) -> bool:
    """Wait until a job of a region ends, at most so many seconds; return False where the server does not say."""
    return isinstance(_hear(url, f"/raysm/jobs/{region}/{name}/end/{timeout_s}", timeout_s).get("ended"), bool)


def hear_change(url: str, region: str, name: str, changes_before: int, timeout_s: int) -> int | None:
    """Wait until a job of a region has another line or status than the ``changes_before``-th, at most so many seconds.

    Returns:
        How many there are; None where the server does not say: of a job that has ended, and of one that it did not run.
    """
    changes = _hear(url, f"/raysm/jobs/{region}/{name}/change/{changes_before}/{timeout_s}", timeout_s).get("changes")
    return changes if isinstance(changes, int) else None


def _hear(url: str, path: str, timeout_s: int) -> "dict[str, Any]":
    """Return what the server says, which may take so long; nothing where it does not."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout_s + 5.0)
    try:
        connection.request("GET", path)
        answer = json.loads(connection.getresponse().read(MOST_BYTES))
        return answer if isinstance(answer, dict) else {}
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()


def _start(home: Path, command: tuple[str, ...]) -> ServerRecord:
    log = log_file(home)
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        log.touch()
    except OSError as error:
        raise InvalidRequest(
            f"the home {home} cannot be used: {error.strerror}; name another one by RAYSM_HOME or Local(home=…)"
        ) from error
    deadline_s, had_rival = time.monotonic() + START_S, is_locked(home)
    begin, process = _launch(home, command, log)
    while time.monotonic() < deadline_s:
        # Asked before the record is read: one that lost the race ends, and the winner's record is there or comes soon.
        ended = process.poll() is not None
        record = answering(home)
        if record is not None:
            return record
        if ended and is_locked(home):
            had_rival = True
        elif ended and (had_rival or LOST in _tail(log, begin)):
            # It met a server that was just ending, and that has ended now.
            (begin, process), had_rival = _launch(home, command, log), False
        elif ended:
            raise ServiceError(
                f"the embedded SageMaker ended at its start with {process.returncode}; its log {log} says:\n"
                f"{_tail(log, begin)}"
            )
        time.sleep(0.05)
    raise ServiceError(
        f"the embedded SageMaker did not answer within {START_S:.0f} s; its log {log} says:\n{_tail(log, begin)}"
    )


def _launch(home: Path, command: tuple[str, ...], log: Path) -> "tuple[int, subprocess.Popen[bytes]]":
    """Start a server; return where its part of the log begins, and its process."""
    _started[:] = [process for process in _started if process.poll() is None]
    with log.open("ab") as output:
        begin = output.tell()
        process = subprocess.Popen(
            [*command, "--home", str(home)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # -m puts this folder first on sys.path: the caller's may hold a flask.py that is not meant.
            cwd=home,
            start_new_session=True,  # Ctrl-C in this terminal is not meant for it
        )
    _started.append(process)
    return begin, process


def is_locked(home: Path) -> bool:
    """Whether some server lives: one that lost the race has ended, while the other one is still coming up."""
    try:
        import fcntl
    except ImportError:  # not on Windows: there, the deadline tells
        return True
    try:
        with lock_file(home).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _tail(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        return file.read()[-2000:].decode(errors="replace").strip() or "nothing"
