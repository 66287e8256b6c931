"""The process that keeps one container: it removes the container after its end, or when the parent is gone.

It is run by path (``python -I -S docker_keeper.py REPORT_FD``) and imports only the standard library. The protocol is
that of ``keeper``. The container's main process is a child of the Docker daemon, and would outlive the parent. The
keeper reads JSON lines from stdin and writes JSON lines to REPORT_FD:

    {"op": "start", "docker": [...], "create": [...], "name": ..., "network": ...}
                                            make and start the container   -> {"event": "started", "pid", "address"}
    {"op": "signal", "number": 15}          signal its main process alone  (no answer)
    end of the stream                       remove the container, then exit

It also reports ``{"event": "exited", "code": 137}`` when the container has ended and is removed. An operation that
fails answers ``{"event": "error", "message": ...}``. The container's output goes to stdout and stderr of this process.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

TICK_S = 0.5
"""How often to check that the parent lives: a forked copy of it may hold our stdin open after its death."""
DOCKER_S = 60.0
"""The daemon answers in milliseconds, but needs seconds to make a container on a loaded machine."""
LOGS_S = 10.0
STATE_FORMAT = "{{.State.Pid}} {{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"


class _Keeper:
    """The state of one keeper."""

    def __init__(self, report_fd: int) -> None:
        self.report_fd = report_fd
        self.parent = os.getppid()
        self.docker: list[str] = []
        self.name = self.network = ""
        self.logs: subprocess.Popen[bytes] | None = None
        self.waiter: subprocess.Popen[bytes] | None = None
        self.buffer = b""

    def report(self, event: str, **fields: Any) -> None:
        with contextlib.suppress(OSError):  # the parent is gone
            os.write(self.report_fd, json.dumps({"event": event, **fields}).encode() + b"\n")

    def serve(self) -> None:
        """Answer operations until the container or the parent is gone."""
        while os.getppid() == self.parent:
            watched = [0, *([self.waiter.stdout.fileno()] if self.waiter and self.waiter.stdout else [])]
            ready, _, _ = select.select(watched, [], [], TICK_S)
            if len(watched) > 1 and watched[1] in ready:
                self.finish()
                return
            if 0 in ready:
                chunk = os.read(0, 1 << 16)
                if not chunk:
                    return
                *lines, self.buffer = (self.buffer + chunk).split(b"\n")
                for line in lines:
                    self.answer(json.loads(line))

    def answer(self, request: Mapping[str, Any]) -> None:
        """Do one operation."""
        try:
            if request["op"] == "start":
                self.start(request)
            elif request["op"] == "signal" and self.waiter is not None:
                with contextlib.suppress(ValueError):  # it may have ended by itself
                    self.call("kill", f"--signal={int(request['number'])}", self.name)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            self.report("error", message=str(error))

    def start(self, request: Mapping[str, Any]) -> None:
        self.docker = request["docker"]
        self.name, self.network = request["name"], request["network"]
        self.call(*request["create"])
        self.call("start", self.name)
        pid, _, address = self.call("inspect", f"--format={STATE_FORMAT}", self.name).strip().partition(" ")
        self.logs = subprocess.Popen([*self.docker, "logs", "--follow", self.name], stdin=subprocess.DEVNULL)
        self.waiter = subprocess.Popen(
            [*self.docker, "wait", self.name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        self.report("started", pid=int(pid), address=address)

    def finish(self) -> None:
        """Pass on the last lines of a container that has ended, remove it, and report how it ended."""
        assert self.waiter is not None
        answer = self.waiter.communicate()[0].split()
        if self.logs is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.logs.wait(LOGS_S)
        self.remove()
        self.report("exited", code=int(answer[0]) if answer else 128 + signal.SIGKILL)

    def remove(self) -> None:
        """Remove the container, and the network once it is empty."""
        for child in (self.logs, self.waiter):
            if child is not None and child.poll() is None:
                child.kill()
                child.wait()
        if self.name:
            with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
                # Remove the anonymous volumes too, which the image declares.
                self.call("rm", "--force", "--volumes", self.name)
        # A living parent removes the network itself; the daemon refuses while another container is in it.
        if os.getppid() != self.parent:
            with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
                self.call("network", "rm", self.network)
        self.name = ""

    def call(self, *arguments: str) -> str:
        """Run the docker command and return its output; raise ValueError with its message if it fails."""
        done = subprocess.run(
            [*self.docker, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DOCKER_S
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise ValueError(f"docker {arguments[0]}: {lines[-1]}" if len(lines) < 2 else f"docker: {lines[0]}")
        return done.stdout


def main() -> None:
    """Keep one container until it or the parent is gone."""
    keeper = _Keeper(int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The parent hangs up to end this process; a signal from a terminal must not leave the container behind.
        signal.signal(number, signal.SIG_IGN)
    try:
        keeper.serve()
    finally:
        keeper.remove()


if __name__ == "__main__":
    main()
