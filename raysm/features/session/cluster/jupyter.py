"""Jupyter servers on the head of a session.

Each server listens on a Unix socket in a private folder, so it needs no token that could appear in
a page, a URL or a log. The session's server forwards the requests of clients that have proved that
they know the job's token.
"""

import asyncio
import contextlib
import datetime
import importlib.util
import itertools
import json
import pickle
import re
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from raysm.core.protocol.web_relay import open_relay, relay
from raysm.errors import InvalidRequest, RaysmError
from raysm.features.session.cluster.calls import Call
from raysm.features.session.cluster.lifetime import Activity
from raysm.features.session.protocol import Outcome
from raysm.instance.environment import inherited

BASE = re.compile(r"/([\w.~-]+/)+")
"""A base path without characters that have a meaning in URLs."""

COMMAND = (sys.executable, "-m", "jupyterlab")
START_S = 120.0
"""How long a server may take to start: seconds of CPU time, and much longer on a busy head."""
PROBE_S = 0.1
LOOK_S = 5.0
END_S = 1.5
TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True)
class _Jupyter:
    base: str
    process: asyncio.subprocess.Process
    client: aiohttp.ClientSession

    def url(self, key: str) -> str:
        return f"http://localhost{self.base}{key}"


class Jupyters:
    """The Jupyter servers of one session; see ``Executor``.

    An object belongs to the event loop of the session's server.
    """

    def __init__(self, folder: Path, private: Path, command: Sequence[str] = COMMAND) -> None:
        self._folder = folder
        self._private = private
        self._command = tuple(command)
        self._running: dict[str, _Jupyter] = {}
        self._numbers = itertools.count(1)

    async def run(self, call: Call) -> tuple[bytes, bool]:
        call.start()
        name = await self.start(bytes(call.content).decode())
        return Outcome(pickled=pickle.dumps(name)).encode(), False

    def interrupt(self, call: Call) -> None:
        pass  # it ends soon, or is cancelled with the session

    async def start(self, base: str) -> str:
        if not BASE.fullmatch(base):
            raise InvalidRequest(
                f"the base path of a Jupyter server begins and ends with /, got {base!r}"
            )
        if self._command[1] == "-m" and importlib.util.find_spec(self._command[2]) is None:
            raise InvalidRequest(
                "the session's head has no JupyterLab: "
                "start it with requirements=['jupyterlab'], or with such an image"
            )
        name = str(next(self._numbers))
        place = self._private / f"j{name}"
        place.mkdir(mode=0o700, parents=True)
        socket = place / "s"
        log = place / "log"
        (place / "jupyter_server_config.json").write_text(
            json.dumps(settings(base, socket, self._folder))
        )
        # The log names the user's notebooks, so it stays out of the job's log.
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={
                    **inherited(),
                    "JUPYTER_CONFIG_DIR": str(place),
                    "JUPYTER_RUNTIME_DIR": str(place),
                },
                cwd=self._folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Keeps signals for the driver's cells away from the server.
                start_new_session=True,
            )
        jupyter = _Jupyter(base, process, open_relay(str(socket)))
        # Registered before it answers, so that close() ends it, too.
        self._running[name] = jupyter
        try:
            await self._await_answer(jupyter)
        except BaseException as error:
            await self._end(self._running.pop(name))
            if isinstance(error, TimeoutError):
                text = log.read_bytes()[-TAIL_BYTES:].decode(errors="replace").strip()
                raise RaysmError(
                    f"JupyterLab did not start on the head; its log ends so:\n{text}"
                ) from error
            raise
        return name

    async def _await_answer(self, jupyter: _Jupyter) -> None:
        until_s = time.monotonic() + START_S
        while True:
            # The socket exists some time before the server answers.
            with contextlib.suppress(OSError, aiohttp.ClientError):
                async with jupyter.client.get(jupyter.url("api")) as answer:
                    if answer.status == 200:
                        return
            if jupyter.process.returncode is not None or time.monotonic() > until_s:
                raise TimeoutError
            await asyncio.sleep(PROBE_S)

    async def forward(self, name: str, request: web.Request, key: str) -> web.StreamResponse:
        jupyter = self._running.get(name)
        if jupyter is None:
            return web.Response(status=404, text="there is no such Jupyter server")
        return await relay(request, jupyter.client, jupyter.url(key))

    async def fetch_activity(self) -> Activity:
        """Return the activity of all kernels; open pages do not count."""
        kernels: list[Mapping[str, Any]] = []
        for jupyter in self._running.values():
            # A server that hangs does not keep the session busy.
            with contextlib.suppress(OSError, aiohttp.ClientError, TimeoutError, ValueError):
                timeout = aiohttp.ClientTimeout(total=LOOK_S)
                async with jupyter.client.get(
                    jupyter.url("api/kernels"),
                    timeout=timeout,
                    headers={"Accept-Encoding": "identity"},
                ) as answer:
                    kernels += json.loads(await answer.read()) if answer.status == 200 else ()
        return summarize_kernels(kernels, time.time())

    async def close(self) -> None:
        running = list(self._running.values())
        self._running = {}
        await asyncio.gather(*(self._end(jupyter) for jupyter in running))

    @staticmethod
    async def _end(jupyter: _Jupyter) -> None:
        # Ends the open requests of browsers first.
        await jupyter.client.close()
        for number, within_s in ((signal.SIGTERM, END_S), (signal.SIGKILL, None)):
            with contextlib.suppress(ProcessLookupError):
                jupyter.process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(jupyter.process.wait(), within_s)
                return


def settings(base: str, socket: Path, folder: Path) -> dict[str, Any]:
    return {
        "ServerApp": {
            "sock": str(socket),
            "sock_mode": "0600",
            "base_url": base,
            "root_dir": str(folder),
            "open_browser": False,
            # SageMaker's containers run as root.
            "allow_root": True,
            # Requests have the host name of the browser's machine.
            "allow_remote_access": True,
            # Cookies are not forwarded. The job's token and the secret path protect the server
            # instead.
            "disable_check_xsrf": True,
        },
        "IdentityProvider": {"token": ""},
        # By default kernels listen at ports, and publish cells and outputs to any user of the
        # machine who connects.
        "KernelManager": {"transport": "ipc"},
        # Both would send requests to the internet.
        "LabApp": {"news_url": None, "check_for_updates_class": "jupyterlab.NeverCheckForUpdate"},
    }


def summarize_kernels(kernels: Iterable[Mapping[str, Any]], now_s: float) -> Activity:
    rows = list(kernels)
    busy = sum(row.get("execution_state") == "busy" for row in rows)
    if busy:
        return Activity(busy, 0.0)
    ends = [
        datetime.datetime.fromisoformat(row["last_activity"]).timestamp()
        for row in rows
        if "last_activity" in row
    ]
    return Activity(0, max(0.0, now_s - max(ends)) if ends else None)
