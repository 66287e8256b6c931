"""The process that keeps one instance: ends everything in it when its main process, or whoever started it, is gone.

Run by path (``python -I -S keeper.py REPORT_FD``), so it imports the standard library and ``kernel`` alone, and starts
in milliseconds. It reads JSON lines from stdin, one operation each, and writes JSON lines to REPORT_FD:

    {"op": "unshare"}                       leave for a network namespace of one's own    -> {"event": "done"}
    {"op": "ip", "commands": [[...], ...]}  run ``ip`` there, once per list               -> {"event": "done"}
    {"op": "start", "command": [...], ...}  start the main process (once)                 -> {"event": "started", "pid"}
    {"op": "signal", "number": 15}          signal the main process alone                 (no answer)
    {"op": "enter", "visit": 1, ...}        run another command beside it (``visit``)     (no answer)
    {"op": "leave", "visit": 1}             kill that command                             (no answer)
    end of the stream                       kill everything, then exit

and, unasked, ``{"event": "exited", "code": 137}`` when the main process and everything that it left are gone, and
``{"event": "left", "visit": 1, "code": 0}`` when a command that ran beside it has ended. An operation that fails
answers ``{"event": "error", "message": ...}``.

How the guarantee holds: on Linux the keeper is the child subreaper, so whatever a process in the instance forks,
double-forks or daemonises stays a descendant of the keeper and is found in ``/proc``; with a PID namespace the kernel
itself kills all with PID 1. The main process asks the kernel to be killed with the keeper. Elsewhere than on Linux
only the main process's group is ended.
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

__all__ = ["main"]


HERE = os.path.dirname(os.path.abspath(__file__))


def _beside(name: str) -> ModuleType:
    """Return a module of this folder: imported as one of the package, it would bring all that runs the instances."""
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
"""How often to look whether the parent lives: a forked copy of it may hold our stdin open after its death."""

OWN_SIGNALS = ("FPE", "ILL", "SEGV", "BUS", "ABRT", "TRAP", "SYS", "TTIN", "TTOU")
FORWARDED = signal.valid_signals() - {signal.Signals[f"SIG{name}"] for name in OWN_SIGNALS}
"""What an init passes on: not what comes of errors of its own, or of its terminal."""


class _Keeper:
    """The state of one keeper."""

    def __init__(self, report_fd: int) -> None:
        self.report_fd = report_fd
        self.parent = os.getppid()
        self.main: int | None = None  # the child that is waited for: the instance's own process, or an init before it
        self.own: int | None = None  # the instance's own process
        self.code: int | None = None
        self.visits: dict[int, int] = {}  # by the pid of each command that runs beside the instance's own
        self.started: Mapping[str, Any] = {}
        self.buffer = b""

    def report(self, event: str, **fields: Any) -> None:
        # With the parent gone there is nobody to tell, and work left to do.
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
        """Do one operation."""
        try:
            if request["op"] == "unshare":
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
                    children = (child for child, parent in _parents().items() if parent == self.main)
                    self.own = next(children, self.main)  # it may have ended by now
                self.report("started", pid=self.own)
            elif request["op"] == "signal" and self.main and self.own and self.code is None:
                # Of these an init hears nothing, and could forward nothing; what is frozen is the process behind it.
                direct = request["number"] in (signal.SIGSTOP, signal.SIGCONT)
                os.kill(self.own if direct else self.main, request["number"])
            elif request["op"] == "enter" and self.own and self.code is None:
                self.visits[_visit(request, self.started, self.own, self.report_fd)] = request["visit"]
            elif request["op"] == "leave":
                for pid in [pid for pid, visit in self.visits.items() if visit == request["visit"]]:
                    os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError) as error:
            self.report("error", message=str(error))

    def reap(self) -> bool:
        """Collect whoever ended; return False when no child is left at all."""
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
        """Kill until nothing is left; whatever forks meanwhile is found in the next round."""
        if not LINUX:
            self.end_group()
            return
        while self.reap():
            for pid in _descendants():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)

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
    """Yield every living process below this one."""
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
                # The command's name stands in parentheses and may hold any character, these included.
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return parents


def _start(request: Mapping[str, Any], report_fd: int) -> int:
    """Start the main process; return its pid as seen from outside once it has been exec'ed."""
    go_on, tell = os.pipe()
    failed, fail = os.pipe()
    if request.get("namespaces"):
        # It moves children alone, of which the first is PID 1: the main process, while the keeper stays outside.
        kernel.call("unshare", kernel.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        os.close(tell)
        os.close(failed)
        _become(request, go_on, fail, report_fd)
    os.close(go_on)
    os.close(fail)
    os.write(tell, b"!")
    os.close(tell)
    message = b""
    # Python's pipes are closed on exec: an end without a word says that exec succeeded.
    while chunk := os.read(failed, 4096):
        message += chunk
    os.close(failed)
    if message:
        os.waitpid(pid, 0)
        raise ValueError(message.decode(errors="replace"))
    return pid


def _visit(request: Mapping[str, Any], started: Mapping[str, Any], keeper_pid: int, report_fd: int) -> int:
    """Run a command beside the main process, in whose namespaces it is; return its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            os.close(report_fd)
            _beside("visit").become(request, started, keeper_pid)
        finally:
            os._exit(127)
    return pid


def _become(request: Mapping[str, Any], go_on: int, fail: int, report_fd: int) -> NoReturn:
    """In the child: turn into the main process."""
    step = "start"
    try:
        if LINUX:
            kernel.call("prctl", kernel.PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        # The keeper may have died between fork and prctl: then this pipe is closed, and nobody would end us.
        if not os.read(go_on, 1):
            os._exit(1)
        if request.get("namespaces"):
            step = "namespaces"
            kernel.enter(request["hostname"], request["mounts"])
        elif request.get("overlays"):
            step = "mounts"
            kernel.protect(request["read_only"], request["writable"], request["overlays"])
        step = "start"
        if request.get("init"):
            _stay_in_front(fail, report_fd)
        # So that elsewhere than on Linux the whole group can be ended by the main process's number.
        os.setsid()
        if request.get("affinity"):
            os.sched_setaffinity(0, request["affinity"])
        null = os.open(os.devnull, os.O_RDONLY)
        # The keeper's stdin is its line to the parent: a program that read from it would take its orders away.
        os.dup2(null, 0)
        os.close(report_fd)
        # What is ignored stays so through exec: by the keeper, Python itself, or a shell in whose background this runs.
        ignored = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGQUIT)
        for number in ignored:
            signal.signal(number, signal.SIG_DFL)
        if request.get("user"):
            step = f"user {request['user']}"
            os.setgroups([])
            os.setgid(request["user"])
            os.setuid(request["user"])
        # Whatever the user's is: modes in an instance are those that SageMaker's root makes.
        os.umask(0o022)
        step = f"chdir {request['cwd']}"
        os.chdir(request["cwd"])
        step = f"exec {request['command'][0]}"
        os.execvpe(request["command"][0], request["command"], request["environment"])
    except BaseException as error:
        os.write(fail, f"{step}: {error}".encode())
    os._exit(1)


def _stay_in_front(*inherited: int) -> None:
    """Be an init, as tini is: return in a child; here, forward signals to it, reap orphans, and exit as it does."""
    # Before there is a child: what is blocked waits, and none is lost that comes in between.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        return
    try:
        # Held open here, the first would keep the keeper from seeing that the child was exec'ed.
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
    """Return 128 + signal where one killed it, as a shell and Docker tell it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _run(command: Sequence[str]) -> None:
    """Run a command to its end.

    Raises:
        ValueError: It failed; the message has its arguments and what it wrote.
    """
    reader, writer = os.pipe()
    try:
        actions = [(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, writer, 2)]
        pid = os.posix_spawn(command[0], list(command), {}, file_actions=actions)
    finally:
        os.close(writer)
    with os.fdopen(reader, "rb") as output:
        text = output.read().decode(errors="replace").strip()
    _, status = os.waitpid(pid, 0)
    if status:
        raise ValueError(f"{' '.join(command)}: {text or f'status {status}'}")


def main() -> None:
    """Keep one instance; as ``keeper.py probe``, fail where mounts of one's own are not to be had."""
    if sys.argv[1:] == ["probe"]:
        kernel.own_mounts()
        return
    keeper = _Keeper(int(sys.argv[1]))
    # The parent takes the end of this stream for the keeper's own: nobody else may hold it.
    os.set_inheritable(keeper.report_fd, False)
    os.chdir("/")
    # Ctrl-C and a closed terminal are the parent's business: it decides, and its end of our stdin tells us.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if LINUX:
        kernel.call("prctl", kernel.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_reader, False)
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    # Python writes to the wakeup pipe only for signals that have a handler, even one that does nothing.
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    try:
        keeper.serve(wake_reader)
    finally:
        keeper.end_all()
        if keeper.code is not None:
            keeper.report("exited", code=keeper.code)


if __name__ == "__main__":
    main()
