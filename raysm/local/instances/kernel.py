"""System calls of an instance: namespaces, mounts, and joining them.

A command next to the main process joins them. The keeper loads this module by its path, so it
imports only the standard library. A failure raises OSError with the name of the step.
"""

import contextlib
import ctypes
import os
import signal
import warnings  # noqa: F401 - os.execvpe imports it; an instance's user may not read it
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_RDONLY = 1
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_SLAVE = 1 << 19
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8

NAMESPACES = ("user", "ipc", "uts", "mnt")
"""The namespaces that an instance may have of its own, which a keeper's child must join in this
order: the user namespace gives the rights for the others. The child inherits the network and the
PID namespace."""
# Without it vi, less and top report a terminal that is not fully functional. SSM's agent sets the
# same.
TERMINAL = {"TERM": "xterm-256color"}


def enter(hostname: str, mounts: Sequence[Sequence[str]]) -> None:
    """Enter new mount, host name and IPC namespaces.

    Carry out the mounts that ``namespace`` planned.
    """
    call("unshare", CLONE_NEWUTS | CLONE_NEWIPC)
    name = hostname.encode()
    call("sethostname", name, len(name))
    own_mounts()
    _carry_out(mounts)


def _carry_out(mounts: Sequence[Sequence[str]]) -> None:
    for kind, source, target, options in mounts:
        if kind == "overlay":
            overlay(target, source, options)
        elif kind == "bind":
            _mount(source, target, flags=MS_BIND | MS_REC)
        elif kind == "bind_if_possible":
            try:
                _mount(source, target, flags=MS_BIND | MS_REC)
            except OSError as error:
                # To the instance's log, which is this process's standard output.
                os.write(
                    1,
                    f"raysm: the instance does not see {source}: {error}\n".encode(
                        errors="replace"
                    ),
                )
        elif kind == "bind_readonly":
            # In two steps: the kernel ignores MS_RDONLY in the call that binds.
            _mount(source, target, flags=MS_BIND | MS_REC)
            _make_readonly(target)
        elif kind == "noexec":
            _remount(target, MS_NOEXEC)
        elif kind == "mkdir":
            os.mkdir(target)
        else:
            _mount(source, target, kind=kind, flags=MS_NOSUID | MS_NODEV, options=options)


def protect(
    read_only: Sequence[str],
    writable: Sequence[str],
    overlays: Sequence[Sequence[str]] = (),
    mounts: Sequence[Sequence[str]] = (),
    *,
    own_user: bool = False,
) -> None:
    """Enter a new mount namespace with overlays and read-only paths.

    The writable paths among the latter stay so. The other ``mounts`` follow. With ``own_user`` the
    rights to mount come from a user namespace.
    """
    if own_user:
        own_user_namespace()
    own_mounts()
    for arguments in overlays:
        overlay(*arguments)
    for path in read_only:
        _mount(path, path, flags=MS_BIND | MS_REC)
        _make_readonly(path)
    # After those: the job's own folders may lie below an input, and must stay writable.
    for path in writable:
        _mount(path, path, flags=MS_BIND | MS_REC)
        _remount(path, 0)
    _carry_out(mounts)


def overlay(folder: str, changes: str, keep: str) -> None:
    """Mount an overlay over ``folder``, so that changes go to the folder ``changes`` instead.

    Other mounts below ``folder`` stay visible, and so does the folder ``keep`` if it lies below.
    With a kernel that has no overlays, ``folder`` becomes read-only.
    """
    below = [*_mounts_below(folder), *([keep] if keep.startswith(f"{folder}/") else [])]
    opened = [(path, os.open(path, os.O_PATH)) for path in below]
    try:
        _mount_overlay(folder, changes)
    except OSError:
        # Some file systems, such as a container's own, cannot hold an overlay's changes: use
        # memory.
        _mount("changes", changes, kind="tmpfs", flags=MS_NOSUID | MS_NODEV)
        try:
            _mount_overlay(folder, changes)
        except OSError:
            _mount(folder, folder, flags=MS_BIND | MS_REC)
            _make_readonly(folder)
    for path, descriptor in opened:
        _mount(f"/proc/self/fd/{descriptor}", path, flags=MS_BIND | MS_REC)
        os.close(descriptor)


def _mount_overlay(folder: str, changes: str) -> None:
    upper = os.path.join(changes, "upper")
    work = os.path.join(changes, "work")
    # Without parents: the server's home may have been deleted meanwhile, and must not come back.
    for made in (os.path.dirname(changes), changes, upper, work):
        with contextlib.suppress(FileExistsError):
            os.mkdir(made)
    # The upper folder's mode becomes the visible folder's.
    os.chmod(upper, os.stat(folder).st_mode & 0o7777)
    layers = {"lowerdir": folder, "upperdir": upper, "workdir": work}
    options = ",".join(f"{name}={_escape(path)}" for name, path in layers.items())
    try:
        # Else its end writes the whole disk's changes back, for 0.1 s and more; these are removed
        # with the job.
        _mount("overlay", folder, kind="overlay", options=f"{options},volatile")
    except OSError:  # before Linux 5.10
        _mount("overlay", folder, kind="overlay", options=options)


def own_user_namespace() -> None:
    """Enter a user namespace as the same user, with the right to mount until the next exec."""
    user = os.geteuid()
    group = os.getegid()
    call("unshare", CLONE_NEWUSER)
    # Without root's help a process may map only itself, and its group only without setgroups.
    maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for name, content in maps.items():
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)


def own_mounts() -> None:
    call("unshare", CLONE_NEWNS)
    # Slave, not shared: mounts made here do not reach the machine, while its unmounts still reach
    # us.
    _mount("none", "/", flags=MS_REC | MS_SLAVE)


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _make_readonly(target: str) -> None:
    # A remount changes one mount, even with MS_REC, so those below it need their own.
    for point in [target, *_mounts_below(target)]:
        _remount(point, MS_RDONLY)


def _mounts_below(folder: str) -> list[str]:
    with open("/proc/self/mountinfo", "rb") as file:
        names = [_unescape(line.split()[4]) for line in file]
    return [name for name in names if name.startswith(folder + "/")]


def _remount(point: str, flags: int) -> None:
    # A remount replaces all flags, so repeat those that the file system was mounted with.
    flags_before = os.statvfs(point).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _mount("none", point, flags=MS_REMOUNT | MS_BIND | flags_before | flags)


def _unescape(field: bytes) -> str:
    # mountinfo writes space, tab, newline and backslash as a backslash and three octal digits.
    first, *rest = field.split(b"\\")
    return os.fsdecode(first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest))


def _mount(source: str, target: str, kind: str = "none", flags: int = 0, options: str = "") -> None:
    arguments = (
        os.fsencode(source),
        os.fsencode(target),
        kind.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )
    try:
        call("mount", *arguments)
    except OSError as error:
        raise OSError(
            error.errno, f"mount {source} on {target} ({kind}): {os.strerror(error.errno or 0)}"
        ) from None


def call(name: str, *arguments: Any) -> None:
    # Python has no unshare or setns before 3.12, and mount and prctl not at all.
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def become_visitor(
    request: Mapping[str, Any], started: Mapping[str, Any], keeper_pid: int
) -> NoReturn:
    """Turn this child of the keeper into the command of ``request``.

    The main process that was ``started`` goes on.
    """
    # First: a keeper that is killed meanwhile must leave no process behind.
    with contextlib.suppress(AttributeError):  # only Linux has prctl
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    stdin = _open(request["stdin"], os.O_RDONLY)
    stdout = _open(request["stdout"], os.O_WRONLY)
    # After stdin and stdout were opened: the instance does not see their paths.
    _join(keeper_pid)
    os.setsid()
    for number in (0, 1, 2):
        os.dup2(stdin if number == 0 else stdout, number)
    if os.isatty(1):
        import fcntl
        import termios

        fcntl.ioctl(1, termios.TIOCSCTTY, 0)
    # The keeper ignores some signals, and so does Python.
    for name in ("INT", "TERM", "HUP", "PIPE", "XFSZ", "QUIT", "CHLD", "TSTP", "TTIN", "TTOU"):
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if started.get("user"):
        become_user(started["user"])
    # SageMaker's umask, whatever the user's is.
    os.umask(0o022)
    os.chdir(started["cwd"])
    os.execvpe(request["command"][0], request["command"], {**started["environment"], **TERMINAL})


def become_user(number: int) -> None:
    """Drop root's rights; groups first, since only root may change them."""
    os.setgroups([])
    os.setgid(number)
    os.setuid(number)


def _open(path: str, flags: int) -> int:
    # O_NOCTTY: only the command takes a terminal as its controlling one.
    descriptor = os.open(path, flags | os.O_NOCTTY)
    # Above the standard descriptors, which are replaced one after the other.
    while descriptor < 3:
        descriptor = os.dup(descriptor)
    return descriptor


def _join(keeper_pid: int) -> None:
    """Enter the namespaces of a process that are not this one's; only Linux has any."""
    if not os.path.isdir("/proc/self/ns"):
        return
    # Open all before entering the first: its mounts may have another /proc.
    try:
        others = [
            name
            for name in NAMESPACES
            if os.stat(f"/proc/{keeper_pid}/ns/{name}").st_ino
            != os.stat(f"/proc/self/ns/{name}").st_ino
        ]
        opened = [
            os.open(f"/proc/{keeper_pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in others
        ]
    except FileNotFoundError:
        # The instance has just ended, and everything in it is killed.
        os.kill(os.getpid(), signal.SIGKILL)
        raise
    for descriptor in opened:
        call("setns", descriptor, 0)
