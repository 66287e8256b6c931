"""Jupyter servers on the head of a session: their base paths flow in, and what browsers ask of them; answers flow out.

Each listens on a Unix socket in the session's private folder, which nobody else of the machine can enter, so it needs
no token of its own: there is none that could stand in its page, in a URL or in a log. A client that asks has proved to
the session's server that it has the job's token, and that server passes its requests on.
"""

import asyncio
import contextlib
import datetime
import importlib.util
import itertools
import json
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

from raysm.bootstrap.environment import inherited
from raysm.contract.web_relay import open_relay, relay
from raysm.errors import InvalidRequest, RaysmError
from raysm.workloads.session.lifetime import Seen

__all__ = ["Jupyters", "kernels_seen", "settings"]

BASE = re.compile(r"/([\w.~-]+/)+")
"""A base path: of words that no part of a URL's grammar is made of."""

COMMAND = (sys.executable, "-m", "jupyterlab")
START_S = 120.0
"""It imports for some seconds of a core; a busy head takes many times as long."""
PROBE_S = 0.1
LOOK_S = 5.0
END_S = 1.5
"""For which it may end its kernels; the bootstrap ends those that are left with the job."""
TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True)
class _Jupyter:
    """One server."""

    base: str
    process: asyncio.subprocess.Process
    client: aiohttp.ClientSession

    def url(self, key: str) -> str:
        return f"http://localhost{self.base}{key}"


class Jupyters:
    """Those of one session; belongs to its server's event loop."""

    def __init__(self, folder: Path, private: Path, command: Sequence[str] = COMMAND) -> None:
        """Start none yet.

        Args:
            folder: Where calls and cells run: its notebooks, too.
            private: A folder that nobody else can enter.
            command: Starts a server, told its settings by ``JUPYTER_CONFIG_DIR``.
        """
        self._folder, self._private, self._command = folder, private, tuple(command)
        self._running: dict[str, _Jupyter] = {}
        self._starts: dict[str, asyncio.Task[str]] = {}
        self._numbers = itertools.count(1)

    async def start(self, base: str) -> str:
        """Start one; return its name once it answers. Whoever asks again for the same path gets the same one.

        Args:
            base: The path below which its browser sees it, ``/…/``.

        Raises:
            InvalidRequest: The path is none, or JupyterLab is not installed here.
            RaysmError: It does not come up; the message has the end of its log.
        """
        if not BASE.fullmatch(base):
            raise InvalidRequest(f"the base path of a Jupyter server begins and ends with /, got {base!r}")
        if self._command[1] == "-m" and importlib.util.find_spec(self._command[2]) is None:
            raise InvalidRequest(
                "the session's head has no JupyterLab: start the session with requirements=['jupyterlab'], or with an "
                "image that has it"
            )
        # A request that was repeated, since the first one's connection broke, begins nothing anew.
        start = self._starts.get(base)
        if start is None or start.done() and (start.cancelled() or start.exception() is not None):
            start = self._starts[base] = asyncio.create_task(self._start(base))
        return await asyncio.shield(start)

    async def _start(self, base: str) -> str:
        name = str(next(self._numbers))
        place = self._private / f"j{name}"
        place.mkdir(mode=0o700, parents=True)
        socket, log = place / "s", place / "log"
        (place / "jupyter_server_config.json").write_text(json.dumps(settings(base, socket, self._folder)))
        # In a file of its own: its log names notebooks, and belongs into nobody's but the user's.
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**inherited(), "JUPYTER_CONFIG_DIR": str(place), "JUPYTER_RUNTIME_DIR": str(place)},
                cwd=self._folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # A Ctrl-C that is meant for a cell of the driver's is not meant for it.
                start_new_session=True,
            )
        jupyter = _Jupyter(base, process, open_relay(str(socket)))
        # Before it answers: an end meanwhile has to end this one too.
        self._running[name] = jupyter
        try:
            await self._await_answer(jupyter)
        except BaseException as error:
            await self._end(self._running.pop(name))
            if isinstance(error, TimeoutError):
                text = log.read_bytes()[-TAIL_BYTES:].decode(errors="replace").strip()
                raise RaysmError(f"JupyterLab did not start on the head; its log ends so:\n{text}") from error
            raise
        return name

    async def _await_answer(self, jupyter: _Jupyter) -> None:
        until_s = time.monotonic() + START_S
        while True:
            # Asked, and not looked for: its socket is there a moment before it answers.
            with contextlib.suppress(OSError, aiohttp.ClientError):
                async with jupyter.client.get(jupyter.url("api")) as answer:
                    if answer.status == 200:
                        return
            if jupyter.process.returncode is not None or time.monotonic() > until_s:
                raise TimeoutError
            await asyncio.sleep(PROBE_S)

    async def pass_on(self, name: str, request: web.Request, key: str) -> web.StreamResponse:
        """Answer what a browser asks of the server ``name``, below its base path."""
        jupyter = self._running.get(name)
        if jupyter is None:
            return web.Response(status=404, text="there is no such Jupyter server")
        return await relay(request, jupyter.client, jupyter.url(key))

    async def look(self) -> Seen:
        """Return how many kernels compute, and since when none does: an open page alone is nobody's work."""
        kernels: list[Mapping[str, Any]] = []
        for jupyter in self._running.values():
            # One that does not answer shows nothing: the session does not stay for a server that hangs.
            with contextlib.suppress(OSError, aiohttp.ClientError, TimeoutError, ValueError):
                timeout = aiohttp.ClientTimeout(total=LOOK_S)
                async with jupyter.client.get(
                    jupyter.url("api/kernels"), timeout=timeout, headers={"Accept-Encoding": "identity"}
                ) as answer:
                    kernels += json.loads(await answer.read()) if answer.status == 200 else ()
        return kernels_seen(kernels, time.time())

    async def close(self) -> None:
        """End all of them, and their kernels; harmless when repeated."""
        for start in self._starts.values():
            start.cancel()
        # Those that just start end themselves by that.
        await asyncio.gather(*self._starts.values(), return_exceptions=True)
        running, self._running = list(self._running.values()), {}
        await asyncio.gather(*(self._end(jupyter) for jupyter in running))

    @staticmethod
    async def _end(jupyter: _Jupyter) -> None:
        # First: what a browser still waits for ends with it.
        await jupyter.client.close()
        for number, within_s in ((signal.SIGTERM, END_S), (signal.SIGKILL, None)):
            with contextlib.suppress(ProcessLookupError):
                jupyter.process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(jupyter.process.wait(), within_s)
                return


def settings(base: str, socket: Path, folder: Path) -> dict[str, Any]:
    """Return Jupyter's settings of a server that nobody reaches but by its socket."""
    return {
        "ServerApp": {
            "sock": str(socket),
            "sock_mode": "0600",
            "base_url": base,
            "root_dir": str(folder),
            "open_browser": False,
            # SageMaker's containers run as root.
            "allow_root": True,
            # It is asked for by the name of the browser's machine.
            "allow_remote_access": True,
            # By cookies, which do not pass: the job's token and the secret path stand for them.
            "disable_check_xsrf": True,
        },
        "IdentityProvider": {"token": ""},
        # Both would ask machines elsewhere.
        "LabApp": {"news_url": None, "check_for_updates_class": "jupyterlab.NeverCheckForUpdate"},
    }


def kernels_seen(kernels: Iterable[Mapping[str, Any]], now_s: float) -> Seen:
    """Return what Jupyter's list of kernels shows.

    Args:
        kernels: As ``/api/kernels`` has them.
        now_s: Seconds since the epoch, of the clock that wrote them.
    """
    rows = list(kernels)
    busy = sum(row.get("execution_state") == "busy" for row in rows)
    if busy:
        return Seen(busy, 0.0)
    ends = [datetime.datetime.fromisoformat(row["last_activity"]).timestamp() for row in rows if "last_activity" in row]
    return Seen(0, max(0.0, now_s - max(ends)) if ends else None)
