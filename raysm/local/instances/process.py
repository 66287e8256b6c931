"""Instances as process groups, on any POSIX system and without root.

The base folder plays ``/opt/ml`` through ``SAGEMAKER_BASE_DIR``; this machine's ``/opt/ml`` is never touched. All
instances share one address, so each port belongs to one instance: the head gets free ports of this machine, and Ray
chooses those of every node.

``pip install`` in a job leaves the user's Python environment as it was, and the job can import what it installed.
If the user may mount (root on Linux), each instance gets an overlay over the environment. Otherwise it gets a virtual
environment that sees the user's packages.
"""

import contextlib
import functools
import json
import os
import random
import re
import shlex
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from raysm.contract import names
from raysm.contract.paths import kernels_folder
from raysm.contract.store import make_folder
from raysm.errors import InvalidRequest, RaysmError
from raysm.local.instances.base import Instance, InstanceSpec, Link, Site
from raysm.local.instances.kept import SCRIPT, Keeper, KeptInstance, end_all

ADDRESS = "127.0.0.1"
HEAD_PORTS = ("control", "gcs", "dashboard")
NODE_PORTS = (
    "node_manager",
    "object_manager",
    "runtime_env_agent",
    "dashboard_agent",
    "dashboard_agent_grpc",
    "metrics_export",
    "worker_min",
    "worker_max",
)
PORT_RANGE = (20000, 32000)
"""Below the ports of outgoing connections, one of which could take a port before the instance listens on it."""
PREFIX = "raysm-"
"""Prefix of the names of scratch folders."""


class ProcessSite(Site):
    """A site of kind ``process``."""

    interface = "lo" if sys.platform.startswith("linux") else "lo0"

    def __init__(self) -> None:
        """Open the site; raise InvalidRequest on a system that is not POSIX."""
        if os.name != "posix":
            raise InvalidRequest("local instances need Linux or macOS; on Windows, run raysm in WSL")
        self._keepers: list[Keeper] = []
        self._scratch = Scratch()

    @property
    def protects(self) -> bool:
        """True if the files that links lead to are mounted read-only, which needs the right to mount."""
        return can_mount()

    def base_inside(self, base: Path) -> Path:
        """Return ``base``: processes see this machine's paths."""
        return base

    def start(self, specs: Sequence[InstanceSpec]) -> list[Instance]:
        """Start all instances; raise RaysmError if one of them cannot be started."""
        ports = dict(zip(HEAD_PORTS, free_ports(len(HEAD_PORTS)), strict=True)) | dict.fromkeys(NODE_PORTS, 0)
        shared = {
            names.PORTS: json.dumps(ports),
            # Hosts have no names on this machine, so the bootstrap must not resolve them.
            names.ADDRESSES: json.dumps({spec.host: ADDRESS for spec in specs}),
            # Each instance has its own temporary folder, and would compile the kernels again.
            names.KERNELS: str(kernels_folder()),
        }
        try:
            return [self._start(spec, shared) for spec in specs]
        except BaseException:
            self.close()
            raise

    def _start(self, spec: InstanceSpec, shared: Mapping[str, str]) -> Instance:
        ray = self._scratch.path / spec.host
        home = spec.private / "home"
        for folder in (ray, home):
            # Without parents: the job's home may have been deleted meanwhile, and must not come back.
            folder.mkdir(exist_ok=True)
        for link in spec.links:
            give(link, within=spec.base, but=spec.private.parent)
        keeper = Keeper(spec.host, spec.log_fd)
        self._keepers.append(keeper)

        def clean() -> None:
            # Only if the keeper was killed: a user's program that reads one of Ray's logs matches too.
            if keeper.lost:
                kill_marked(spec.base, ray)

        instance = KeptInstance(keeper, spec.host, ADDRESS, clean=clean)
        variables = {
            names.BASE_DIR: str(spec.base),
            names.RAY_TEMP_DIR: str(ray),
            "HOME": str(home),
            # A short path, because paths of sockets are limited to about 100 characters.
            "TMPDIR": str(ray),
            **shared,
            **spec.share.variables(),
            # Last: the job's own variables replace the service's.
            **spec.variables,
        }
        layers: list[Overlay] = []
        if self.protects:
            layers = overlays(spec.private)
        else:
            environment = spec.private / "installed"
            commands = make_virtual_environment(environment)
            variables["VIRTUAL_ENV"] = str(environment)
            variables["PATH"] = os.pathsep.join([str(commands), variables.get("PATH", os.defpath)])
        protected = [str(path) for path in spec.originals] if self.protects else []
        instance.start(
            command=spec.command,
            environment=variables,
            cwd=str(home),
            affinity=spec.share.affinity if hasattr(os, "sched_setaffinity") else None,
            read_only=protected,
            writable=[str(path) for path in (spec.private, self._scratch.path)] if protected else [],
            overlays=layers,
        )
        return instance

    def close(self) -> None:
        """End every instance and remove their temporary folders."""
        end_all(self._keepers)
        self._scratch.close()


@functools.cache
def can_mount() -> bool:
    """Return whether this user's processes may have their own mounts: root may, except in most containers."""
    if not sys.platform.startswith("linux"):
        return False
    # In another process, because unshare would give this one its own mounts for good.
    completed = subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT), "probe"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return completed.returncode == 0


def give(link: Link, within: Path, but: Path | None = None) -> None:
    """Make the target of ``link`` a symbolic link; for a folder, make a folder with a symbolic link to each file.

    A job that makes, removes or renames files in the target changes only the instance's own folders.

    Args:
        link: The source and the target.
        within: An existing folder above the target.
        but: A folder that is left out: the job's own, which may lie below the source.
    """
    if not link.source.is_dir():
        make_folder(link.target.parent, within)
        link.target.symlink_to(link.source)
        return
    for folder, folders, files in os.walk(link.source):
        folders[:] = [name for name in folders if Path(folder, name) != but]
        target = link.target / Path(folder).relative_to(link.source)
        make_folder(target, within)
        # A relative link in the source would lead nowhere from the target, so link to the link itself.
        names = [*files, *(name for name in folders if os.path.islink(os.path.join(folder, name)))]
        for name in names:
            os.symlink(os.path.join(folder, name), target / name)


def free_ports(count: int) -> list[int]:
    """Return ``count`` distinct TCP ports on which nothing listens; raise RaysmError if there are none left."""
    chosen: list[int] = []
    candidates = random.SystemRandom().sample(range(*PORT_RANGE), 1000)
    while len(chosen) < count and candidates:
        port = candidates.pop()
        with socket.socket() as probe, contextlib.suppress(OSError):
            # As servers do: a connection in TIME_WAIT does not occupy the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # On every address: a listener on any of them could receive the instance's connections.
            probe.bind(("", port))
            chosen.append(port)
    if len(chosen) < count:
        raise RaysmError(f"no free TCP ports in {PORT_RANGE[0]} to {PORT_RANGE[1]}; end what listens there")
    return chosen


def kill_marked(base: Path, ray: Path) -> None:
    """Kill every process of the instance with the folder ``base``, or of the Ray session below ``ray``.

    The keeper does this itself unless it was killed. Then only environment and arguments show a process's instance.
    """
    deadline = time.monotonic() + 10
    # Repeated, because a process may fork before the signal reaches it.
    while time.monotonic() < deadline:
        marked = list(_marked(base, ray))
        if not marked:
            return
        for pid in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _marked(base: Path, ray: Path) -> Iterator[int]:
    if not sys.platform.startswith("linux"):
        return
    for folder in Path("/proc").iterdir():
        # A zombie has neither file.
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and (
                f"{names.BASE_DIR}={base}".encode() in (folder / "environ").read_bytes().split(b"\0")
                or f"{ray}/".encode() in (folder / "cmdline").read_bytes()
            ):
                yield int(folder.name)


Overlay = tuple[str, str, str]
"""The folder under the overlay, the folder that takes the changes, and a folder that the overlay must not hide."""


def overlays(private: Path) -> list[Overlay]:
    """Return the overlays over this Python's environment; an instance's changes go below its folder ``private``."""
    prefixes = (sys.prefix, sys.base_prefix, *_site_folders())
    found = {Path(path).resolve() for path in prefixes if Path(path).is_dir()}
    outermost = sorted(path for path in found if not any(parent in found for parent in path.parents))
    return [
        (str(lower), str(private / "installed" / str(number)), str(private)) for number, lower in enumerate(outermost)
    ]


def _site_folders() -> list[str]:
    # sys.path too: a .pth file may bring another environment's packages.
    return [path for path in [*site.getsitepackages(), *sys.path] if path.endswith(("site-packages", "dist-packages"))]


def make_virtual_environment(folder: Path) -> Path:
    """Make a virtual environment with the packages and commands of this Python; return the folder of its commands."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # With addsitedir, because editable installs need the .pth files in these folders to be read.
    lines = [f"import site; site.addsitedir({path!r})\n" for path in dict.fromkeys(_site_folders())]
    (folder / "lib" / version / "site-packages" / "user.pth").write_text("".join(lines))
    commands = folder / "bin"
    for script in Path(sys.executable).parent.iterdir():
        text = _python_script(script)
        if text is not None and not (commands / script.name).exists():
            # Through sh, as pip does it: the path in a "#!" line is cut after 127 characters.
            start = f"#!/bin/sh\n'''exec' {shlex.quote(str(commands / 'python'))} \"$0\" \"$@\"\n' '''\n"
            (commands / script.name).write_text(start + text)
            (commands / script.name).chmod(0o755)
    return commands


def _python_script(path: Path) -> str | None:
    """Return the text of a console script without the lines that start its Python; None for any other file."""
    if not path.is_file() or not os.access(path, os.X_OK):
        return None
    with path.open("rb") as file:
        if file.read(2) != b"#!":
            return None
        rest = file.read()
    first, _, text = rest.decode(errors="replace").partition("\n")
    if first.strip().endswith("/sh") and text.startswith("'''exec'"):
        return text.partition("\n' '''\n")[2]
    return text if "python" in first else None


class Scratch:
    """A short-lived folder with a short name, readable by its owner alone; a context manager.

    The folder itself is locked (``flock``) while this object or this process lives. The next folder that is made
    removes those whose owners were killed, because the kernel released their locks.
    """

    def __init__(self, parent: Path | None = None, prefix: str = PREFIX) -> None:
        """Make the folder below ``parent`` (default: the system's temporary folder), and remove dead ones there."""
        if parent is None:
            # Paths of sockets have at most 104 characters on macOS, of which gettempdir() takes half.
            parent = Path("/tmp") if os.access("/tmp", os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
        sweep(parent, prefix)
        self._lock: int | None = None
        # Another process's sweep may remove the new folder before it is locked.
        while self._lock is None:
            self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
            self._lock = _lock(self.path)

    def close(self) -> None:
        """Remove the folder; may be repeated."""
        if self._lock is None:
            return
        # Remove it while it is locked, so that no sweep comes in between.
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        self._lock = None

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _lock(folder: Path) -> int | None:
    """Lock ``folder`` and return the descriptor; None if another process locked or removed it."""
    import fcntl  # missing on Windows, where this module is imported to raise a clear error

    try:
        # In a folder that all users may write to, a link can lead anywhere.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.lstat(folder)):
            return handle
    except OSError:
        pass
    os.close(handle)
    return None


def sweep(parent: Path, prefix: str = PREFIX) -> list[Path]:
    """Remove and return this user's scratch folders below ``parent`` that are not locked; links are not followed."""
    swept = []
    # Match the whole name that Scratch makes: a user's own "raysm-notes" has the same prefix.
    ours = re.compile(re.escape(prefix) + r"\d+-[a-z0-9_]{8}")
    for folder in parent.iterdir():
        with contextlib.suppress(OSError):
            if not ours.fullmatch(folder.name) or os.lstat(folder).st_uid != os.getuid():
                continue
            handle = _lock(folder)
            if handle is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(handle)
                swept.append(folder)
    return swept
