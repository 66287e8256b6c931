"""Instances as process groups, on any POSIX system and without root.

The base folder plays ``/opt/ml``: ``SAGEMAKER_BASE_DIR`` names it, and if the system allows mounts
it also appears at ``/opt/ml``, for scripts that name that path themselves. All instances share one
address, so each port belongs to one instance: the head gets free ports of this machine, and Ray
chooses those of every node.

Root mounts in a mount namespace. Another user does so in a user namespace, which keeps the user's
id, shows files of other users as ``nobody``'s, and has no ``sudo``. Where neither is allowed, as on
macOS or in most containers, ``/opt/ml`` is this machine's, and the log names the lines that use it.
Nothing is made in this machine's ``/opt``: a folder of the instance is mounted over it, which has
the instance's ``ml`` and this machine's other entries.

``pip install`` in a job leaves the user's Python environment as it was, and the job can import what
it installed. If the user may mount (root on Linux), each instance gets an overlay over the
environment. Otherwise it gets a virtual environment that sees the user's packages.
"""

import contextlib
import functools
import json
import os
import random
import shlex
import shutil
import site
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from raysm.core.protocol import names
from raysm.core.protocol.paths import kernels_folder
from raysm.core.protocol.store import make_folder
from raysm.errors import InvalidRequest, RaysmError
from raysm.local.instances.base import Instance, InstanceSpec, Link, Site
from raysm.local.instances.kept_instance import SCRIPT, Keeper, KeptInstance, end_all

ADDRESS = "127.0.0.1"
LOOPBACK_S = 5.0
HEAD_PORTS = ("control", "gcs", "dashboard")
AGENT_PORTS = ("runtime_env_agent", "dashboard_agent", "dashboard_agent_grpc", "metrics_export")
NODE_PORTS = ("node_manager", "object_manager", *AGENT_PORTS, "worker_min", "worker_max")
PORT_RANGE = (20000, 32000)
"""Below the ports of outgoing connections, one of which could take a port before the instance
listens on it."""
PREFIX = "raysm-job-"
"""Prefix of the names of temporary folders; earlier versions of raysm remove those named
``raysm-PID-…``."""


Mount = tuple[str, str, str, str]
"""Kind (``bind``, ``bind_if_possible``, ``bind_readonly``, ``noexec``, ``overlay``, ``mkdir``, or a
file system's type), source, target, options."""

OPT = Path("/opt")


def own_opt(opt: Path, staging: Path, ml: Sequence[Mount]) -> list[Mount]:
    """Make the folder ``staging``.

    Return the mounts that replace ``opt`` by it, ``ml`` among them.
    """
    staging.mkdir()
    mounts: list[Mount] = []
    for entry in sorted(entry for entry in opt.iterdir() if entry.name != "ml"):
        target = staging / entry.name
        if entry.is_symlink():
            # mount would follow the link.
            target.symlink_to(os.readlink(entry))
            continue
        make_mount_point(entry, target, within=staging)
        # An entry that cannot be mounted, such as a broken network drive, must not keep every job
        # from starting.
        mounts.append(("bind_if_possible", str(entry), str(target), ""))
    (staging / "ml").mkdir()
    return [*mounts, *ml, ("bind", str(staging), str(opt), "")]


def make_mount_point(source: Path, target: Path, within: Path) -> None:
    """Make ``target`` a folder or a file, as ``source`` is.

    ``target`` is below the existing folder ``within``.
    """
    if source.is_dir():
        make_folder(target, within)
    else:
        make_folder(target.parent, within)
        target.touch()


def check_loopback() -> None:
    """Raise InvalidRequest if processes of this machine cannot reach each other.

    Ray would wait without a word.
    """
    with socket.socket() as server, socket.socket() as client:
        client.settimeout(LOOPBACK_S)
        try:
            server.bind((ADDRESS, 0))
            server.listen(1)
            client.connect(server.getsockname())
        except OSError as error:
            raise InvalidRequest(
                f"processes of this machine cannot reach each other at {ADDRESS} "
                f"({error.strerror or error})",
                remedy="turn on the loopback interface, as root: ip link set lo up",
            ) from error


class ProcessSite(Site):
    interface = "lo" if sys.platform.startswith("linux") else "lo0"

    def __init__(self) -> None:
        if os.name != "posix":
            raise InvalidRequest(
                "local instances need Linux or macOS; on Windows, run raysm in WSL"
            )
        self._keepers: list[Keeper] = []
        # Paths of sockets have at most 104 characters on macOS, of which gettempdir() takes half.
        parent = "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else None
        self._scratch = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))

    sees_machine = True

    @property
    def protects(self) -> bool:
        return can_mount()

    def base_inside(self, base: Path) -> Path:
        return base

    @classmethod
    def foreign_opt_ml(cls, specs: Sequence[InstanceSpec]) -> str | None:
        if not can_mount() and not can_mount_as_user():
            return "this system does not let the job mount its own"
        if not OPT.is_dir():
            return f"{OPT} does not exist"
        ml = OPT / "ml"
        paths = {Path(path).resolve() for path in (sys.prefix, sys.base_prefix, *sys.path) if path}
        for spec in specs:
            paths |= {spec.private, *spec.originals, *(link.source for link in spec.links)}
        hidden = sorted(str(path) for path in paths if path.is_relative_to(ml.resolve()))
        return f"the job needs {hidden[0]}" if hidden else None

    def start(self, specs: Sequence[InstanceSpec]) -> list[Instance]:
        check_loopback()
        ports = dict(zip(HEAD_PORTS, free_ports(len(HEAD_PORTS)), strict=True)) | dict.fromkeys(
            NODE_PORTS, 0
        )
        shared = {
            names.PORTS: json.dumps(ports),
            # Hosts have no names on this machine, so the bootstrap must not resolve them.
            names.ADDRESSES: json.dumps({spec.host: ADDRESS for spec in specs}),
            # Each instance has its own temporary folder, and would compile the kernels again.
            names.KERNELS: str(kernels_folder()),
        }
        own_ml = self.foreign_opt_ml(specs) is None
        try:
            return [self._start(spec, shared, own_ml) for spec in specs]
        except BaseException:
            self.close()
            raise

    def _start(self, spec: InstanceSpec, shared: Mapping[str, str], own_ml: bool) -> Instance:
        ray = self._scratch / spec.host
        home = spec.private / "home"
        for folder in (ray, home):
            # Without parents: the job's home may have been deleted meanwhile, and must not come
            # back.
            folder.mkdir(exist_ok=True)
        mounts: list[Mount] = []
        for link in spec.links:
            if link.is_mounted and self.protects:
                make_mount_point(link.source, link.target, within=spec.base)
                mounts.append(("bind_readonly", str(link.source), str(link.target), ""))
            else:
                give(link, within=spec.base, but=spec.private.parent)
        keeper = Keeper(spec.host, spec.log_fd)
        self._keepers.append(keeper)
        keeper.call("at_end", commands=[], orphaned=[["rm", "-rf", str(self._scratch)]])

        def clean() -> None:
            if keeper.lost:
                kill_marked(spec.base)

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
        if own_ml:
            staging = spec.private / "opt"
            # After the mounts in the base, which it takes along.
            mounts += own_opt(OPT, staging, [("bind", str(spec.base), str(staging / "ml"), "")])
        protected = [str(path) for path in spec.originals] if self.protects else []
        instance.start(
            command=spec.command,
            environment=variables,
            cwd=str(home),
            affinity=spec.share.affinity if hasattr(os, "sched_setaffinity") else None,
            read_only=protected,
            writable=[str(path) for path in (spec.private, self._scratch)] if protected else [],
            overlays=layers,
            mounts=mounts,
            own_user=not can_mount(),
        )
        return instance

    def close(self) -> None:
        end_all(self._keepers)
        shutil.rmtree(self._scratch, ignore_errors=True)


@functools.cache
def can_mount() -> bool:
    return sys.platform.startswith("linux") and _succeeds("probe")


@functools.cache
def can_mount_as_user() -> bool:
    """Return whether this user may mount in a user namespace."""
    if not sys.platform.startswith("linux"):
        return False
    overflow = int(Path("/proc/sys/kernel/overflowuid").read_text())
    # In a user namespace every other user has the id ``overflow``: a user with that id would take
    # others' listening ports for its own. Root would lose its rights over other users' files.
    return os.geteuid() not in (0, overflow) and _succeeds("probe-user")


def _succeeds(probe: str) -> bool:
    # In another process, because unshare would give this one its own mounts for good.
    command = [sys.executable, "-I", "-S", str(SCRIPT), probe]
    completed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return completed.returncode == 0


def give(link: Link, within: Path, but: Path | None = None) -> None:
    """Make the target of ``link`` a symbolic link.

    For a folder, make a folder with a symbolic link to each file. A job that makes, removes or
    renames files there changes only the instance's own folders. ``but`` is left out: the job's own
    folder, which may lie below the source.
    """
    if not link.source.is_dir():
        make_folder(link.target.parent, within)
        link.target.symlink_to(link.source)
        return
    for folder, folders, files in os.walk(link.source):
        folders[:] = [name for name in folders if Path(folder, name) != but]
        target = link.target / Path(folder).relative_to(link.source)
        make_folder(target, within)
        # A relative link in the source would lead nowhere from the target, so link to the link
        # itself.
        names = [*files, *(name for name in folders if os.path.islink(os.path.join(folder, name)))]
        for name in names:
            os.symlink(os.path.join(folder, name), target / name)


def free_ports(count: int) -> list[int]:
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
        raise RaysmError(
            f"no free TCP ports in {PORT_RANGE[0]} to {PORT_RANGE[1]}; end what listens there"
        )
    return chosen


def kill_marked(base: Path) -> None:
    """Kill every process of the instance with the folder ``base``, known by its environment.

    The keeper does this itself unless it was killed.
    """
    # Repeated, because a process may fork before the signal reaches it.
    while marked := list(_marked(base)):
        for process in marked:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.01)


def _marked(base: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(names.BASE_DIR) == str(base):
                yield process


Overlay = tuple[str, str, str]
"""The folder under the overlay, the folder that takes the changes, and a folder that the overlay
must not hide."""


def overlays(private: Path) -> list[Overlay]:
    """Return the overlays over this Python's environment.

    An instance's changes go below its folder ``private``.
    """
    prefixes = (sys.prefix, sys.base_prefix, *_site_folders())
    found = {Path(path).resolve() for path in prefixes if Path(path).is_dir()}
    outermost = sorted(
        path for path in found if not any(parent in found for parent in path.parents)
    )
    return [
        (str(lower), str(private / "installed" / str(number)), str(private))
        for number, lower in enumerate(outermost)
    ]


def _site_folders() -> list[str]:
    # sys.path too: a .pth file may bring another environment's packages.
    return [
        path
        for path in [*site.getsitepackages(), *sys.path]
        if path.endswith(("site-packages", "dist-packages"))
    ]


def make_virtual_environment(folder: Path) -> Path:
    """Make a virtual environment with the packages and commands of this Python.

    Return the folder of its commands.
    """
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
            start = (
                f"#!/bin/sh\n'''exec' {shlex.quote(str(commands / 'python'))} \"$0\" \"$@\"\n' "
                "'''\n"
            )
            (commands / script.name).write_text(start + text)
            (commands / script.name).chmod(0o755)
    return commands


def _python_script(path: Path) -> str | None:
    """Return the text of a console script without the lines that start its Python.

    Return None for any other file.
    """
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
