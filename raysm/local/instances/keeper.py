"""The process that keeps one instance.

It kills everything in the instance when its main process or the parent is gone. It is run by path
(``python -I -S keeper.py REPORT_FD``) and imports only the standard library and ``kernel``, so that
it starts in milliseconds. It reads JSON lines from stdin, one operation each, and writes JSON lines
to REPORT_FD:

    {"op": "at_end", "commands": [[...]], "orphaned": [[...]]}
        run these at the end, the second ones only if the parent is gone -> {"event": "done"}
    {"op": "unshare"}
        enter a new network namespace -> {"event": "done"}
    {"op": "ip", "commands": [[...], ...]}
        run ``ip`` there, once per list -> {"event": "done"}
    {"op": "start", "command": [...], ...}
        start the main process (once) -> {"event": "started", "pid"}
    {"op": "signal", "number": 15}
        signal the main process alone (no answer)
    {"op": "enter", "visit": 1, ...}
        run another command beside it (no answer)
    {"op": "leave", "visit": 1}
        kill that command (no answer)
    end of the stream
        kill everything, then exit

It also reports ``{"event": "exited", "code": 137}`` when the main process and everything that it
left are gone, and ``{"event": "left", "visit": 1, "code": 0}`` when a command beside it has ended.
An operation that fails answers ``{"event": "error", "message": ...}``.

On Linux the keeper is the child subreaper, so that daemons too stay its descendants and are found
in ``/proc``; with a PID namespace the kernel kills all processes with PID 1. The main process asks
the kernel to be killed with the keeper. On other systems only the main process's group is ended.
"""

import contextlib
import importlib.util
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from raysm.local.instances import kernel

HERE = os.path.dirname(os.path.abspath(__file__))


def _beside(name: str) -> ModuleType:
    """Load a module of this folder without its package, whose imports would take long."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    kernel = _beside("kernel")

LINUX = sys.platform.startswith("linux")
TICK_S = 0.5
"""How often to check that the parent lives: a forked copy of it may hold our stdin open after its
death."""

OWN_SIGNALS = ("FPE", "ILL", "SEGV", "BUS", "ABRT", "TRAP", "SYS", "TTIN", "TTOU")
FORWARDED = signal.valid_signals() - {signal.Signals[f"SIG{name}"] for name in OWN_SIGNALS}
"""Signals that an init forwards: all but those of its own errors and of its terminal."""


class _Keeper:
    def __init__(self, report_fd: int) -> None:
        self.report_fd = report_fd
        self.parent = os.getppid()
        self.main: int | None = None  # the child: the instance's own process, or its init
        self.own: int | None = None  # the instance's own process
        self.code: int | None = None
        self.visits: dict[int, int] = {}  # visit numbers by pid
        self.started: Mapping[str, Any] = {}
        self.buffer = b""
        self.at_end: Mapping[str, Any] = {"commands": [], "orphaned": []}

    def report(self, event: str, **fields: Any) -> None:
        with contextlib.suppress(OSError):
            os.write(self.report_fd, json.dumps({"event": event, **fields}).encode() + b"\n")

    def serve(self, wake_fd: int) -> None:
        """Answer operations until the main process or the parent is gone."""
        while self.code is None and os.getppid() == self.parent:
            ready, _, _ = select.select([0, wake_fd], [], [], TICK_S)
            if wake_fd in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_fd, 4096)
            self.reap()
            if 0 in ready:
                chunk = os.read(0, 1 << 16)
                if not chunk:
                    return
                *lines, self.buffer = (self.buffer + chunk).split(b"\n")
                for line in lines:
                    self.answer(json.loads(line))

    def answer(self, request: Mapping[str, Any]) -> None:
        try:
            if request["op"] == "at_end":
                self.at_end = request
                self.report("done")
            elif request["op"] == "unshare":
                kernel.call("unshare", kernel.CLONE_NEWNET)
                self.report("done")
            elif request["op"] == "ip":
                for command in request["commands"]:
                    _run(command)
                self.report("done")
            elif request["op"] == "start":
                self.started = request
                self.main = self.own = _start(request, self.report_fd)
                if request.get("init"):
                    children = (
                        child for child, parent in _parents().items() if parent == self.main
                    )
                    self.own = next(children, self.main)  # it may have ended by now
                self.report("started", pid=self.own)
            elif request["op"] == "signal" and self.main and self.own and self.code is None:
                # An init cannot forward these two, so they go to the process behind it.
                direct = request["number"] in (signal.SIGSTOP, signal.SIGCONT)
                os.kill(self.own if direct else self.main, request["number"])
            elif request["op"] == "enter" and self.own and self.code is None:
                self.visits[_visit(request, self.started, self.own, self.report_fd)] = request[
                    "visit"
                ]
            elif request["op"] == "leave":
                for pid in [pid for pid, visit in self.visits.items() if visit == request["visit"]]:
                    os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError) as error:
            self.report("error", message=str(error))

    def reap(self) -> bool:
        """Collect children that ended; return False when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.main:
                self.code = _exit_code(status)
            if pid in self.visits:
                self.report("left", visit=self.visits.pop(pid), code=_exit_code(status))

    def end_all(self) -> None:
        """Kill all processes, in rounds because some fork meanwhile.

        Then run the commands that clean up.
        """
        while LINUX and self.reap():
            for pid in _descendants():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        if not LINUX:
            self.end_group()
        orphaned = self.at_end["orphaned"] if os.getppid() != self.parent else []
        for command in [*self.at_end["commands"], *orphaned]:
            with contextlib.suppress(OSError, ValueError):
                _run(command)

    def end_group(self) -> None:
        if self.main is None:
            return
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                os.killpg(self.main, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                break
            self.reap()
            time.sleep(0.01)
        while self.reap():
            time.sleep(0.01)


def _descendants() -> Iterator[int]:
    parents = _parents()
    pids = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in pids and pid not in pids}
        if not more:
            return
        yield from more
        pids |= more


def _parents() -> dict[int, int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # The command's name stands in parentheses and may hold any character, these
                # included.
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return parents


def _start(request: Mapping[str, Any], report_fd: int) -> int:
    """Start the main process; return its pid as seen from outside once it has been exec'ed."""
    go_reader, go_writer = os.pipe()
    error_reader, error_writer = os.pipe()
    if request.get("namespaces"):
        # This moves only children, and the first of them is PID 1: the keeper stays outside.
        kernel.call("unshare", kernel.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        os.close(go_writer)
        os.close(error_reader)
        _become(request, go_reader, error_writer, report_fd)
    os.close(go_reader)
    os.close(error_writer)
    os.write(go_writer, b"!")
    os.close(go_writer)
    message = b""
    # Python's pipes are closed on exec, so an end without a message means that exec succeeded.
    while chunk := os.read(error_reader, 4096):
        message += chunk
    os.close(error_reader)
    if message:
        os.waitpid(pid, 0)
        raise ValueError(message.decode(errors="replace"))
    return pid


def _visit(
    request: Mapping[str, Any], started: Mapping[str, Any], keeper_pid: int, report_fd: int
) -> int:
    """Run a command beside the main process, in its namespaces; return the pid."""
    pid = os.fork()
    if pid == 0:
        try:
            os.close(report_fd)
            kernel.become_visitor(request, started, keeper_pid)
        finally:
            os._exit(127)
    return pid


def _become(
    request: Mapping[str, Any], go_reader: int, error_writer: int, report_fd: int
) -> NoReturn:
    step = "start"
    try:
        if LINUX:
            kernel.call("prctl", kernel.PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        # If the pipe is closed, the keeper died between fork and prctl, and the kernel does not
        # kill this process.
        if not os.read(go_reader, 1):
            os._exit(1)
        if request.get("namespaces"):
            step = "namespaces"
            kernel.enter(request["hostname"], request["mounts"])
        elif request.get("overlays") or request.get("mounts"):
            step = "mounts"
            kernel.protect(
                request["read_only"],
                request["writable"],
                request["overlays"],
                request["mounts"],
                own_user=request["own_user"],
            )
        step = "start"
        if request.get("init"):
            _become_init(error_writer, report_fd)
        # Outside Linux the keeper kills the process group, which has the main process's number.
        os.setsid()
        if request.get("affinity"):
            os.sched_setaffinity(0, request["affinity"])
        null = os.open(os.devnull, os.O_RDONLY)
        # Replace the keeper's stdin: a program that reads it would take away the parent's requests.
        os.dup2(null, 0)
        os.close(report_fd)
        # Ignored signals stay ignored through exec; the keeper, Python or a shell may ignore these.
        ignored = (
            signal.SIGINT,
            signal.SIGTERM,
            signal.SIGHUP,
            signal.SIGPIPE,
            signal.SIGXFSZ,
            signal.SIGQUIT,
        )
        for number in ignored:
            signal.signal(number, signal.SIG_DFL)
        if request.get("user"):
            step = f"user {request['user']}"
            kernel.become_user(request["user"])
        # SageMaker's umask, whatever the user's is.
        os.umask(0o022)
        step = f"chdir {request['cwd']}"
        os.chdir(request["cwd"])
        step = f"exec {request['command'][0]}"
        environment = request.get("environment", os.environ)  # noqa: TID251
        os.execvpe(request["command"][0], request["command"], environment)
    except BaseException as error:
        os.write(error_writer, f"{step}: {error}".encode())
    os._exit(1)


def _become_init(*inherited: int) -> None:
    """Return in a child.

    This process becomes its init: it forwards signals, reaps orphans, and exits as the child.
    """
    # Block before the fork, so that no signal is lost in between.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        return
    try:
        # An open copy would keep the keeper from seeing that the child was exec'ed.
        for descriptor in (0, *inherited):
            os.close(descriptor)
        while True:
            number = signal.sigwait(FORWARDED)
            if number != signal.SIGCHLD:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, number)
                continue
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    os._exit(_exit_code(ended[1]))
    finally:
        os._exit(1)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _run(command: Sequence[str]) -> None:
    reader, writer = os.pipe()
    try:
        actions = [(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, writer, 2)]
        pid = os.posix_spawnp(
            command[0],
            list(command),
            os.environ,  # noqa: TID251
            file_actions=actions,
        )
    finally:
        os.close(writer)
    with os.fdopen(reader, "rb") as output:
        text = output.read().decode(errors="replace").strip()
    _, status = os.waitpid(pid, 0)
    if status:
        raise ValueError(f"{' '.join(command)}: {text or f'status {status}'}")


def main() -> None:
    """Keep one instance; as ``keeper.py probe``, fail if this process may not have its own mounts.

    ``keeper.py probe-user`` tries the same with a user namespace.
    """
    if sys.argv[1] in ("probe", "probe-user"):
        if sys.argv[1] == "probe-user":
            kernel.own_user_namespace()
        kernel.own_mounts()
        return
    keeper = _Keeper(int(sys.argv[1]))
    # The parent takes the end of this stream for the end of the keeper, so no child may hold it.
    os.set_inheritable(keeper.report_fd, False)
    os.chdir("/")
    # The parent handles Ctrl-C and a closed terminal, and closes our stdin to end this process.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if LINUX:
        kernel.call("prctl", kernel.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_reader, False)
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    # Python writes to the wakeup pipe only for signals that have a handler.
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    try:
        keeper.serve(wake_reader)
    finally:
        keeper.end_all()
        if keeper.code is not None:
            keeper.report("exited", code=keeper.code)


if __name__ == "__main__":
    main()
