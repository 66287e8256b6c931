"""The commands about the embedded SageMaker: up, down, status, clean, interrupt."""

import contextlib
import functools
import json
import os
import shlex
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.core.client.job.listing import find_job, jobs
from raysm.core.client.job.removal import check, descriptions, removable, remove, usage
from raysm.core.client.service import connect
from raysm.core.client.targets.connection import CheckedConnection
from raysm.core.client.targets.local import (
    active_jobs,
    ensure_server,
    find_server,
    is_server_locked,
)
from raysm.core.protocol import own_socket
from raysm.core.protocol.home import (
    ServerRecord,
    home,
    log_file,
    private_folder,
    scenario_file,
    sdk_config_file,
)
from raysm.core.protocol.store import put
from raysm.core.request import Local
from raysm.errors import InvalidRequest, ServiceError
from raysm.local.scenario import parse, read

OLD = timedelta(days=7)
"""``raysm local clean`` removes jobs older than this, unless an option says otherwise."""
MAX_SHOWN = 5
END_S = 60.0


def run(arguments: Arguments, console: Console) -> None:
    folder = home()
    if arguments.verb == "up":
        if arguments.scenario is not None:
            _set_scenario(folder, Path(arguments.scenario))
        variables = _client_variables(ensure_server(folder).url, folder)
        if arguments.export:
            # print, because console would wrap and color what a shell reads.
            print(
                "\n".join(
                    f"export {name}={shlex.quote(value)}" for name, value in variables.items()
                )
            )
        else:
            _print_answer(arguments, console, {"running": True, "home": str(folder)} | variables)
    elif arguments.verb == "down":
        record = find_server(folder)
        active = [] if record is None else active_jobs(record)
        if active and not arguments.force:
            # A program gets the list, and also the exit status of the error.
            if arguments.json:
                answer = {
                    "running": True,
                    "ended": False,
                    "home": str(folder),
                    "active_jobs": active,
                }
                _print_answer(arguments, console, answer)
            many, them = (
                (f"{len(active)} jobs are", "them") if len(active) > 1 else ("1 job is", "it")
            )
            raise InvalidRequest(
                f"{many} active: {', '.join(active)}; wait for {them}, stop {them} (raysm stop "
                f"JOB), or end {them} with the server: raysm local down --force"
            )
        ended = _end_server(folder, record)
        # The next server must not play a scenario that its user has forgotten.
        scenario_file(folder).unlink(missing_ok=True)
        _print_answer(
            arguments,
            console,
            {"running": False, "ended": ended, "home": str(folder), "ended_jobs": active},
        )
    elif arguments.verb == "status":
        switched = [
            f"{switch} = {json.dumps(value)}"
            for switch, value in read(scenario_file(folder)).switched()
        ]
        scenario = {"scenario": switched} if switched else {}
        _print_answer(arguments, console, _status() | scenario | _sizes(folder, arguments.json))
    elif arguments.verb == "clean":
        _print_answer(arguments, console, _clean(arguments))
    else:
        _print_answer(arguments, console, {"interrupted": _interrupt(arguments.job)})


def _set_scenario(folder: Path, path: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the scenario {path} cannot be read: {error}") from None
    scenario = parse(text, str(path))
    place = scenario_file(folder)
    # Compare values: a new comment does not make another scenario.
    if find_server(folder) is not None and scenario != read(place):
        raise InvalidRequest(
            f"the embedded SageMaker of {folder} runs with another scenario; end it first: raysm "
            "local down"
        )
    private_folder(folder)
    put(place, text, mode=0o600)


def _status() -> dict[str, Any]:
    folder = home()
    record = ServerRecord.read(folder)
    running = find_server(folder)
    if running is None:
        answer: dict[str, Any] = {"running": False, "home": str(folder)}
        if record is not None:
            answer["note"] = (
                "the server that started "
                f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(record.started_s))} (pid "
                f"{record.pid}) was killed, and its jobs ended with it; the next server marks them "
                f"as failed; the log is {log_file(folder)}"
            )
        return answer
    # Only if a server answers, because listing jobs would start one.
    active = [job.name for job in jobs(Local(), limit=100) if not job.status.is_terminal]
    return {
        "running": True,
        "pid": running.pid,
        "home": str(folder),
        "since_s": max(0, round(time.time() - running.started_s)),
        "active_jobs": active,
        **_client_variables(running.url, folder),
    }


def _sizes(folder: Path, as_json: bool) -> dict[str, Any]:
    used = usage(folder)
    if as_json:
        return {"home_bytes": used.bytes, "job_bytes": used.jobs}
    largest = [f"{name} {_size(size)}" for name, size in list(used.jobs.items())[:MAX_SHOWN]]
    more = [f"{len(used.jobs) - MAX_SHOWN} more"] if len(used.jobs) > MAX_SHOWN else []
    return {
        "home_size": f"{_size(used.bytes)} (raysm local clean, raysm rm JOB)",
        "largest_jobs": largest + more,
    }


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _clean(arguments: Arguments) -> dict[str, Any]:
    if arguments.keep is not None and arguments.keep < 0:
        raise InvalidRequest(f"--keep must be at least 0, got {arguments.keep}")
    service = connect(Local())
    older_than = arguments.older_than
    if older_than is None and arguments.keep is None:
        older_than = OLD
    # Measure sizes before the jobs are removed.
    before = usage(service.home)
    every = descriptions(service)
    removed = []
    refusals = []
    for job in removable(service, older_than=older_than, keep=arguments.keep or 0):
        try:
            check(job, every)
        except InvalidRequest as error:
            # The user did not name this job, unlike with ``raysm rm``: keep it, and remove the
            # others.
            refusals.append(str(error))
            continue
        if not arguments.dry_run:
            remove(job, every)
            # State that only removed jobs share is removed with the last of them.
            every = [other for other in every if other.name != job.name]
        removed.append(job.name)
    freed = sum(before.jobs.get(name, 0) for name in removed)
    return {
        "would_remove" if arguments.dry_run else "removed": removed,
        "in_use": refusals,
        "bytes": freed,
    }


def _client_variables(url: str, folder: Path) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": url,
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(sdk_config_file(folder)),
        # The server takes any credentials, but boto3 needs some, and a region.
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": Local().regions[0],
    }


def _end_server(folder: Path, record: ServerRecord | None) -> bool:
    """End the server of a home; return whether one answered.

    No server writes into the home when this returns.
    """
    deadline_s = time.monotonic() + END_S
    # A server that has the lock but no record is starting, or is ending and still saves its data.
    while record is None and is_server_locked(folder):
        _wait(deadline_s, f"the embedded SageMaker of {folder}")
        record = find_server(folder)
    if record is None:
        return False
    try:
        # The pid is still the server's: it has just answered while it held the lock.
        os.kill(record.pid, signal.SIGTERM)
    except ProcessLookupError:  # it ended by itself meanwhile
        pass
    except PermissionError as error:
        server = f"the embedded SageMaker (pid {record.pid})"
        raise ServiceError(f"{server} belongs to another user, who must end it") from error
    # Watch the process, not the lock, which another server may have by then.
    while _is_running(record.pid):
        _wait(deadline_s, f"the embedded SageMaker (pid {record.pid})")
    return True


def _wait(deadline_s: float, server: str) -> None:
    if time.monotonic() > deadline_s:
        raise ServiceError(f"{server} did not end within {END_S:.0f} s")
    time.sleep(0.05)


def _is_running(pid: int) -> bool:
    # Imported here: only ``raysm local down`` needs it, and a machine with a server has it.
    import psutil

    try:
        # Only a parent can wait for a process. A zombie has ended.
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _interrupt(name: str) -> str:
    record = find_server(home())
    if record is None:
        raise ServiceError(
            "the embedded SageMaker does not run, so there is no job to interrupt; see raysm local "
            "status"
        )
    job = find_job(name, connect(Local())).name
    # Not by boto3: SageMaker has no such operation.
    connection = CheckedConnection(functools.partial(own_socket.connect, record.socket), 30.0)
    try:
        connection.request("POST", f"/raysm/jobs/{quote(job, safe='')}/interrupt")
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace")
    finally:
        connection.close()
    if answer.status >= 400:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            body = str(json.loads(body)["message"])
        raise InvalidRequest(body)
    return job


def _print_answer(arguments: Arguments, console: Console, answer: dict[str, Any]) -> None:
    if arguments.json:
        print(json.dumps(answer, indent=1))
        return
    for key, value in answer.items():
        shown = ", ".join(value) or "none" if isinstance(value, list) else value
        console.print(Text(f"{key:<30} {shown}"), soft_wrap=True)
