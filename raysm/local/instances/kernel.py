"""Namespaces and mounts of an instance, by system calls.

The keeper loads this module by its path, so it imports only the standard library. Mounts come as ``mounts`` plans them.
A step that fails raises OSError with its name.
"""

import contextlib
import ctypes
import os
from collections.abc import Sequence
from typing import Any

__all__ = [
    "CLONE_NEWNET",
    "CLONE_NEWPID",
    "PR_SET_CHILD_SUBREAPER",
    "PR_SET_PDEATHSIG",
    "call",
    "enter",
    "overlay",
    "own_mounts",
    "protect",
]

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


def enter(hostname: str, mounts: Sequence[Sequence[str]]) -> None:
    """Take mount, host name and IPC namespaces of one's own, and mount what the plan says, in its order."""
    call("unshare", CLONE_NEWUTS | CLONE_NEWIPC)
    name = hostname.encode()
    call("sethostname", name, len(name))
    own_mounts()
    for kind, source, target, options in mounts:
        if kind == "overlay":
            overlay(target, source, options)
        elif kind == "bind":
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


def protect(read_only: Sequence[str], writable: Sequence[str], overlays: Sequence[Sequence[str]] = ()) -> None:
    """Take a mount namespace of one's own, with overlays, and read-only paths but for the writable ones among them."""
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


def overlay(folder: str, changes: str, keep: str) -> None:
    """Mount an overlay over ``folder``, so that what is changed in it goes to the folder ``changes`` instead.

    Other mounts below ``folder`` stay visible, and so does the folder ``keep`` if it lies below. With a kernel that has
    no overlays, ``folder`` becomes read-only.
    """
    below = [*_mounts_below(folder), *([keep] if keep.startswith(f"{folder}/") else [])]
    opened = [(path, os.open(path, os.O_PATH)) for path in below]
    try:
        _mount_overlay(folder, changes)
    except OSError:
        # The file system of ``changes`` cannot hold an overlay's changes, as a container's own cannot: use memory.
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
    upper, work = os.path.join(changes, "upper"), os.path.join(changes, "work")
    # One by one: the folder of the instance above them is not made again if the server's home was deleted meanwhile.
    for made in (os.path.dirname(changes), changes, upper, work):
        with contextlib.suppress(FileExistsError):
            os.mkdir(made)
    # The upper folder's mode becomes the visible folder's.
    os.chmod(upper, os.stat(folder).st_mode & 0o7777)
    layers = {"lowerdir": folder, "upperdir": upper, "workdir": work}
    options = [f"{name}={_escape(path)}" for name, path in layers.items()]
    _mount("overlay", folder, kind="overlay", options=",".join(options))


def own_mounts() -> None:
    """Take a mount namespace of one's own, in which nothing is mounted otherwise yet."""
    call("unshare", CLONE_NEWNS)
    # Slave, not shared: nothing that is mounted here reaches the machine, while its own unmounts still reach us.
    _mount("none", "/", flags=MS_REC | MS_SLAVE)


def _escape(path: str) -> str:
    """Escape a path for the options of an overlay, in which colons and commas separate."""
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _make_readonly(target: str) -> None:
    # A remount changes one mount, also with MS_REC: those below it would stay writable.
    for point in [target, *_mounts_below(target)]:
        _remount(point, MS_RDONLY)


def _mounts_below(folder: str) -> list[str]:
    with open("/proc/self/mountinfo", "rb") as file:
        names = [_unescape(line.split()[4]) for line in file]
    return [name for name in names if name.startswith(folder + "/")]


def _remount(point: str, flags: int) -> None:
    # A remount sets all flags anew: those that the file system was mounted with have to be repeated.
    flags_before = os.statvfs(point).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _mount("none", point, flags=MS_REMOUNT | MS_BIND | flags_before | flags)


def _unescape(field: bytes) -> str:
    # mountinfo writes blank, tab, newline and backslash as a backslash and three octal digits.
    first, *rest = field.split(b"\\")
    return os.fsdecode(first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest))


def _mount(source: str, target: str, kind: str = "none", flags: int = 0, options: str = "") -> None:
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode())
    try:
        call("mount", *arguments)
    except OSError as error:
        raise OSError(error.errno, f"mount {source} on {target} ({kind}): {os.strerror(error.errno or 0)}") from None


def call(name: str, *arguments: Any) -> None:
    """Call a function of the C library that returns 0 or sets errno."""
    # Python has no unshare or setns before 3.12, and mount and prctl not at all.
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
