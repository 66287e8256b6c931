"""The process that keeps one instance: ends everything in it when its main process, or whoever started it, is gone.

Run by path (``python -I -S keeper.py REPORT_FD``), so it imports the standard library alone and starts in
milliseconds. What flows in are JSON lines on stdin, one operation each; what flows out are JSON lines on REPORT_FD:

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
import ctypes
import importlib.util
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

__all__ = ["main"]

LINUX = sys.platform.startswith("linux")
TICK_S = 0.5
"""How often to look whether the parent lives: a forked copy of it may hold our stdin open after its death."""

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x20000000,
    0x40000000,
)
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 1, 32, 4096, 16384, 1 << 19
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8

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
                _call("unshare", CLONE_NEWNET)
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
    known = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in known and pid not in known}
        if not more:
            return
        yield from more
        known |= more


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
    told, tell = os.pipe()
    failed, fail = os.pipe()
    if request.get("namespaces"):
        # It moves children alone, of which the first is PID 1: the main process, while the keeper stays outside.
        _call("unshare", CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        os.close(tell)
        os.close(failed)
        _become(request, told, fail, report_fd)
    os.close(told)
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


def _visit(request: Mapping[str, Any], started: Mapping[str, Any], own: int, report_fd: int) -> int:
    """Run a command beside the main process, in whose namespaces it is; return its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            os.close(report_fd)
            # By its path, as this program itself was started: nothing of raysm can be imported here.
            spec = importlib.util.spec_from_file_location("visit", os.path.join(os.path.dirname(__file__), "visit.py"))
            assert spec is not None
            assert spec.loader is not None
            visit = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(visit)
            visit.become(request, started, own)
        finally:
            os._exit(127)
    return pid


def _become(request: Mapping[str, Any], told: int, fail: int, report_fd: int) -> NoReturn:
    """In the child: turn into the main process."""
    step = "start"
    try:
        if LINUX:
            _call("prctl", PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        # The keeper may have died between fork and prctl: then this pipe is closed, and nobody would end us.
        if not os.read(told, 1):
            os._exit(1)
        if request.get("namespaces"):
            step = "namespaces"
            _enter(request)
        elif request.get("read_only"):
            step = "read-only inputs"
            _protect(request["read_only"], request["writable"])
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


def _enter(request: Mapping[str, Any]) -> None:
    """Take mount, host name and IPC namespaces of one's own, and mount what the plan says, in its order."""
    _call("unshare", CLONE_NEWUTS | CLONE_NEWIPC)
    name = request["hostname"].encode()
    _call("sethostname", name, len(name))
    _own_mounts()
    for kind, source, target, options in request["mounts"]:
        if kind == "bind":
            _mount(source, target, flags=MS_BIND | MS_REC)
        elif kind == "bind_readonly":
            # In two steps: the kernel passes over MS_RDONLY in the call that binds.
            _mount(source, target, flags=MS_BIND | MS_REC)
            _make_readonly(target)
        elif kind == "readonly":
            _remount(target, MS_RDONLY)
        elif kind == "mkdir":
            os.mkdir(target)
        else:
            _mount(source, target, kind=kind, flags=MS_NOSUID | MS_NODEV, options=options)


def _protect(read_only: Sequence[str], writable: Sequence[str]) -> None:
    """Take a mount namespace of one's own, in which some paths are read-only, but for others that may lie below."""
    _own_mounts()
    for path in read_only:
        _mount(path, path, flags=MS_BIND | MS_REC)
        _make_readonly(path)
    # After those: the job's own folders may lie below an input, and must stay writable.
    for path in writable:
        _mount(path, path, flags=MS_BIND | MS_REC)
        _remount(path, 0)


def _own_mounts() -> None:
    _call("unshare", CLONE_NEWNS)
    # Slave, not shared: nothing that is mounted here reaches the machine, while its own unmounts still reach us.
    _mount("none", "/", flags=MS_REC | MS_SLAVE)


def _make_readonly(target: str) -> None:
    points = [target]
    if os.path.isdir(target):
        with open("/proc/self/mountinfo", "rb") as file:
            names = [_unescape(line.split()[4]) for line in file]
        # A remount changes one mount, also with MS_REC: those below it would stay writable.
        points += [name for name in names if name.startswith(target + "/")]
    for point in points:
        _remount(point, MS_RDONLY)


def _remount(point: str, flags: int) -> None:
    # A remount sets all flags anew: those that the file system was mounted with have to be repeated.
    kept = os.statvfs(point).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _mount("none", point, flags=MS_REMOUNT | MS_BIND | kept | flags)


def _unescape(field: bytes) -> str:
    # mountinfo writes blank, tab, newline and backslash as a backslash and three octal digits.
    first, *rest = field.split(b"\\")
    return os.fsdecode(first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest))


def _mount(source: str, target: str, kind: str = "none", flags: int = 0, options: str = "") -> None:
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode())
    try:
        _call("mount", *arguments)
    except OSError as error:
        raise OSError(error.errno, f"mount {source} on {target} ({kind}): {os.strerror(error.errno or 0)}") from None


def _call(name: str, *arguments: Any) -> None:
    """Call a function of the C library that returns 0 or sets errno."""
    # Python has no unshare or setns before 3.12, and mount and prctl not at all.
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


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
        _own_mounts()
        return
    keeper = _Keeper(int(sys.argv[1]))
    # The parent takes the end of this stream for the keeper's own: nobody else may hold it.
    os.set_inheritable(keeper.report_fd, False)
    os.chdir("/")
    # Ctrl-C and a closed terminal are the parent's business: it decides, and its end of our stdin tells us.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if LINUX:
        _call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
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
