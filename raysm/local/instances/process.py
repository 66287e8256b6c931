"""Instances as process groups, on any POSIX system and without root.

The base folder plays ``/opt/ml`` by way of ``SAGEMAKER_BASE_DIR``; this machine's ``/opt/ml`` is never touched. All
instances share one address, so each port belongs to one instance: the head's are free ports of this machine, those of
every node are left to Ray.
"""

import contextlib
import functools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from raysm.contract import names
from raysm.contract.paths import kernels_folder
from raysm.contract.store import make_folder
from raysm.errors import InvalidRequest, RaysmError
from raysm.local.instances import user_environment
from raysm.local.instances.base import Instance, InstanceSpec, Link, Site
from raysm.local.instances.kept import SCRIPT, Keeper, KeptInstance, end_all
from raysm.local.instances.share import Share
from raysm.local.instances.user_environment import Overlay
from raysm.local.scratch import Scratch

__all__ = ["ProcessSite", "free_ports", "share_variables"]

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
"""Below the ports that systems give to outgoing connections: one of those could take ours before we listen on it."""


class ProcessSite(Site):
    """A site of kind ``process``."""

    interface = "lo" if sys.platform.startswith("linux") else "lo0"

    def __init__(self) -> None:
        """Check that this system can do it.

        Raises:
            InvalidRequest: It is no POSIX system.
        """
        if os.name != "posix":
            raise InvalidRequest("local instances need Linux or macOS; on Windows, run raysm in WSL")
        self._keepers: list[Keeper] = []
        self._scratch = Scratch()

    @property
    def protects(self) -> bool:
        """Whether this system lets its instances mount their originals read-only."""
        return can_mount()

    def base_inside(self, base: Path) -> Path:
        """Return ``base``: processes see this machine's paths."""
        return base

    def start(self, specs: Sequence[InstanceSpec]) -> list[Instance]:
        """Start all instances.

        Raises:
            RaysmError: One of them could not be started.
        """
        ports = dict(zip(HEAD_PORTS, free_ports(len(HEAD_PORTS)), strict=True)) | dict.fromkeys(NODE_PORTS, 0)
        shared = {
            names.PORTS: json.dumps(ports),
            # The bootstrap resolves no names then: those of the hosts mean nothing on this machine.
            names.ADDRESSES: json.dumps({spec.host: ADDRESS for spec in specs}),
            # Each has a temporary folder of its own, and would compile what this machine has: 2 s of a core.
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
            # Not what is above it: while the first instances begin, the job's home may have been deleted.
            folder.mkdir(exist_ok=True)
        for link in spec.links:
            give(link, within=spec.base, but=spec.private.parent)
        keeper = Keeper(spec.host, spec.log_fd)
        self._keepers.append(keeper)

        def clean() -> None:
            # Not where the keeper has ended them all: the marks are also those of who reads a log of Ray's.
            if keeper.lost:
                kill_marked(spec.base, ray)

        instance = KeptInstance(keeper, spec.host, ADDRESS, clean=clean)
        variables = {
            names.BASE_DIR: str(spec.base),
            names.RAY_TEMP_DIR: str(ray),
            "HOME": str(home),
            # The short folder: sockets are made in there, whose paths have few characters.
            "TMPDIR": str(ray),
            **shared,
            **share_variables(spec.share),
            # Last: the job's own variables replace the service's.
            **spec.variables,
        }
        affinity = spec.share.affinity if hasattr(os, "sched_setaffinity") else None
        overlays: list[Overlay] = []
        if self.protects:
            overlays = user_environment.overlays(spec.private)
        else:
            environment = spec.private / "installed"
            commands = user_environment.make_virtual_environment(environment)
            variables["VIRTUAL_ENV"] = str(environment)
            variables["PATH"] = os.pathsep.join([str(commands), variables.get("PATH", os.defpath)])
        protected = [str(path) for path in spec.originals] if self.protects else []
        instance.start(
            command=spec.command,
            environment=variables,
            cwd=str(home),
            affinity=affinity,
            read_only=protected,
            writable=[str(path) for path in (spec.private, self._scratch.path)] if protected else [],
            overlays=overlays,
        )
        return instance

    def close(self) -> None:
        """End every instance and remove their temporary folders."""
        end_all(self._keepers)
        self._scratch.close()


def share_variables(share: Share, *, object_store: bool = True) -> dict[str, str]:
    """Return the variables that tell the bootstrap of a share."""
    values = {
        names.CPUS: share.cpus,
        names.MEMORY_BYTES: share.memory_bytes,
        names.OBJECT_STORE_BYTES: share.object_store_bytes if object_store else None,
        "CUDA_VISIBLE_DEVICES": None if share.gpus is None else ",".join(share.gpus),
    }
    return {name: str(value) for name, value in values.items() if value is not None}


@functools.cache
def can_mount() -> bool:
    """Whether processes of this user may have mounts of their own: root may, outside most containers."""
    if not sys.platform.startswith("linux"):
        return False
    # In a process of its own: unshare would give this one mounts of its own for good.
    completed = subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT), "probe"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return completed.returncode == 0


def give(link: Link, within: Path, but: Path | None = None) -> None:
    """Make the target of ``link`` a symbolic link; of a folder, a folder with a symbolic link to each file.

    So what is made, removed or renamed in the target touches the instance's own folders alone.

    Args:
        link: From where to where.
        within: A folder above its target, which is there.
        but: A folder that is left out: the job's own, which may lie below what it is given.
    """
    if not link.source.is_dir():
        make_folder(link.target.parent, within)
        link.target.symlink_to(link.source)
        return
    for folder, folders, files in os.walk(link.source):
        folders[:] = [name for name in folders if Path(folder, name) != but]
        target = link.target / Path(folder).relative_to(link.source)
        make_folder(target, within)
        # A link in there may be relative: it leads nowhere from here, but its own path does.
        names = [*files, *(name for name in folders if os.path.islink(os.path.join(folder, name)))]
        for name in names:
            os.symlink(os.path.join(folder, name), target / name)


def free_ports(count: int) -> list[int]:
    """Return ``count`` distinct TCP ports that nobody on this machine listens on.

    Raises:
        RaysmError: There are none left.
    """
    chosen: list[int] = []
    candidates = random.SystemRandom().sample(range(*PORT_RANGE), 1000)
    while len(chosen) < count and candidates:
        port = candidates.pop()
        with socket.socket() as probe, contextlib.suppress(OSError):
            # As servers set it: a connection that lingers in TIME_WAIT takes a port from nobody.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # On every address: whoever listens on one of them may get what is meant for the instance.
            probe.bind(("", port))
            chosen.append(port)
    if len(chosen) < count:
        raise RaysmError(f"no free TCP ports in {PORT_RANGE[0]} to {PORT_RANGE[1]}; end what listens there")
    return chosen


def kill_marked(base: Path, ray: Path) -> None:
    """Kill every process that runs in the instance of ``base``, or in the Ray session below ``ray``.

    The keeper has done so already, unless it was itself killed; then nothing but its environment and its arguments
    tells a process's instance.
    """
    deadline = time.monotonic() + 10
    # Again and again: what is killed may have forked between the look and the signal.
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
        # A zombie has neither: it is dead already, and its parent's to collect.
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and (
                f"{names.BASE_DIR}={base}".encode() in (folder / "environ").read_bytes().split(b"\0")
                or f"{ray}/".encode() in (folder / "cmdline").read_bytes()
            ):
                yield int(folder.name)
