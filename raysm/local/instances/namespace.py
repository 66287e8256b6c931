"""Instances as Linux namespaces.

Each has its own address, ``/opt/ml``, ``/dev/shm``, ``/tmp`` and PID 1. They need Linux and root.
They are separated as SageMaker's instances are, so that what works here works there. They are no
protection against malicious code, which is root on this machine.

An instance sees this machine's file system with these exceptions:

- The folders of ``/opt/ml`` are those of its base folder, and the links in them are read-only. A
  scenario can limit the room outside of them (``root_mb``), as on SageMaker's small ``/``. Nothing
  is made in this machine's ``/opt``: a folder of the instance is mounted over it, which has its own
  ``ml`` and this machine's other entries, so that a Python in ``/opt`` still works.
- The Python environment is under an overlay, so that packages that the job installs go away with
  it.
- ``/dev/shm`` is its own, of its share's size; ``/proc`` shows its own processes.
- ``/etc/hosts`` has the names of the job's instances; the name server of ``/etc/resolv.conf`` does
  not exist.
- The folder of the job shows only this instance's part.
- ``/tmp`` is its own. It shows only what must stay visible: Python, the folders on its
  ``sys.path``, raysm itself, the instance's home, the kernels that this machine has compiled.

All sources of mounts are paths of this machine, so mounts that hide some of them (``/opt``,
``/dev/shm``, ``/tmp``) come last.
"""

import os
import socket
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from raysm.core.protocol.paths import DEFAULT_BASE, kernels_folder
from raysm.errors import InvalidRequest
from raysm.local.instances.base import HOST_NAME, Instance, InstanceSpec, Site, open_to_all
from raysm.local.instances.kept_instance import Keeper, KeptInstance, end_all
from raysm.local.instances.network import (
    INTERFACE,
    MAX_INSTANCES,
    HostNames,
    Network,
    connect_inside,
    missing_for_namespaces,
)
from raysm.local.instances.process import OPT, Mount, make_mount_point, overlays, own_opt

TMP = Path("/tmp")
SHM = Path("/dev/shm")


class _NamespaceInstance(KeptInstance):
    def connect(self, port: int) -> socket.socket:
        return connect_inside(self.keeper, port)


class NamespaceSite(Site):
    interface = INTERFACE
    plays = frozenset(
        (
            "container.root_mb",
            "container.user",
            "container.noexec_tmp",
            "container.leaves_out_empty",
        )
        + ("network.names_resolve_after_s", "network.silent_internet")
    )

    @staticmethod
    def missing() -> str | None:
        return missing_for_namespaces()

    def __init__(self, keep: Iterable[Path] = ()) -> None:
        """Make the network.

        Instances see the paths ``keep`` below ``/tmp`` besides those that Python needs.
        """
        # Otherwise each instance would compile the kernels again.
        kernels = kernels_folder()
        kernels.mkdir(mode=0o700, exist_ok=True)
        self._keep = [Path(path).resolve() for path in keep] + needs_python() + [kernels]
        self._keepers: list[Keeper] = []
        self._names: HostNames | None = None
        self._network = Network()

    def base_inside(self, base: Path) -> Path:
        return DEFAULT_BASE

    def start(self, specs: Sequence[InstanceSpec]) -> list[Instance]:
        if len(specs) > MAX_INSTANCES:
            raise InvalidRequest(
                f"at most {MAX_INSTANCES} instances of kind 'namespace', got {len(specs)}"
            )
        try:
            for number, spec in enumerate(specs):
                keeper = Keeper(spec.host, spec.log_fd)
                self._keepers.append(keeper)
                # All networks before any program, because the first one that starts may call the
                # others at once.
                keeper.call("unshare")
                self._network.attach(keeper, number)
            if specs[0].scenario.network.silent_internet:
                self._network.silence_gateway(self._keepers)
            addresses = {
                spec.host: self._network.address(number) for number, spec in enumerate(specs)
            }
            self._names = HostNames(addresses, specs[0].scenario)
            return [self._start(spec, number, self._names) for number, spec in enumerate(specs)]
        except BaseException:
            self.close()
            raise

    def _start(self, spec: InstanceSpec, number: int, names: HostNames) -> Instance:
        container = spec.scenario.container
        home = spec.private / "home"
        if container.user:
            # As for a user of an image for whom no home was made.
            home = Path("/")
            open_to_all(spec.base)
        else:
            home.mkdir(exist_ok=True)
        hosts = spec.private / "hosts"
        resolver = spec.private / "resolv.conf"
        names.write(hosts, spec.host)
        # Nothing listens on the loopback's port 53, so a foreign name fails at once instead of
        # after 10 s.
        resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        instance = _NamespaceInstance(
            self._keepers[number], spec.host, self._network.address(number)
        )
        # The bootstrap sizes Ray's object store to /dev/shm, as it does on SageMaker.
        variables = {
            "HOME": str(home),
            **spec.share.variables(object_store=False),
            **spec.variables,
        }
        instance.start(
            command=spec.command,
            environment=variables,
            cwd=str(home),
            affinity=spec.share.affinity,
            namespaces=True,
            hostname=HOST_NAME,
            init=True,
            user=container.user,
            mounts=plan(spec, keep=[*self._keep, home], hosts=hosts, resolver=resolver),
        )
        return instance

    def close(self) -> None:
        if self._names is not None:
            self._names.close()
        end_all(self._keepers)
        self._network.close()


def needs_python() -> list[Path]:
    # raysm may be imported from a checkout outside of all prefixes.
    package = Path(__file__).parents[3]
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    paths: list[str | Path] = [*prefixes, Path(sys.executable).parent, package, *sys.path]
    return [Path(path).resolve() for path in paths if path and Path(path).exists()]


def plan(
    spec: InstanceSpec, keep: Iterable[Path], hosts: Path, resolver: Path, opt: Path = OPT
) -> list[Mount]:
    """Prepare the folders below ``spec.private`` and return the mounts, in order.

    The paths ``keep`` stay visible although they lie below ``/tmp``; the files ``hosts`` and
    ``resolver`` appear in ``/etc``; a test replaces ``opt``.
    """
    for folder in (opt, TMP, SHM):
        if not folder.is_dir():
            raise InvalidRequest(
                f"instances of kind 'namespace' need the folder {folder}; make it, or use 'process'"
            )
    layers = overlays(spec.private)
    # The overlays are first, so that folders bound from below them belong to the instance.
    mounts: list[Mount] = [
        ("overlay", changes, lower, private) for lower, changes, private in layers
    ]
    mounts += [("proc", "proc", "/proc", "")]
    mounts += [
        ("bind", str(source), target, "")
        for source, target in ((hosts, "/etc/hosts"), (resolver, "/etc/resolv.conf"))
        # A mount needs an existing target, and nothing is made in this machine's /etc.
        if os.path.exists(target)
    ]
    mounts += [("bind", str(spec.base), str(spec.base), "")]
    for link in spec.links:
        make_mount_point(link.source, link.target, within=spec.base)
        mounts.append(("bind_readonly", str(link.source), str(link.target), ""))
    # After the links, whose sources may be in the job's folder.
    mounts += _own_job(spec.private)
    closed = _closed_folders(keep) if spec.scenario.container.user else []
    replaced = [
        _own_folder(TMP, spec.private / "tmp", keep, mode=0o1777),
        *(_own_folder(path, spec.private / path.name, keep, mode=0o755) for path in closed),
    ]
    # The folder that hides the sources of the others comes last.
    replaced.sort(key=lambda folder_mounts: spec.private.is_relative_to(folder_mounts[-1][2]))
    return [
        *mounts,
        *own_opt(opt, spec.private / "opt", _own_ml(spec, spec.private / "opt" / "ml")),
        ("tmpfs", "shm", str(SHM), f"size={spec.share.shm_bytes},mode=1777"),
        *(mount for folder_mounts in replaced for mount in folder_mounts),
        # Only that mount: the programs of this machine that stay visible below it can be run.
        *([("noexec", "", str(TMP), "")] if spec.scenario.container.noexec_tmp else []),
    ]


def _own_job(private: Path) -> list[Mount]:
    """Hide the other instances' folders beside ``private``."""
    staging = private / "job"
    (staging / private.name).mkdir(parents=True)
    return [
        ("bind", str(private), str(staging / private.name), ""),
        ("bind", str(staging), str(private.parent), ""),
    ]


def _own_ml(spec: InstanceSpec, target: Path) -> list[Mount]:
    """Return the mounts of ``/opt/ml``.

    The documented folders are from this machine's disk, the rest is on a small one.
    """
    size_mb = spec.scenario.container.root_mb
    if not size_mb:
        return [("bind", str(spec.base), str(target), "")]
    folders = sorted(path for path in spec.base.iterdir() if path.is_dir())
    mounts: list[Mount] = [("tmpfs", "root", str(target), f"size={size_mb}m,mode=755")]
    for folder in folders:
        place = str(target / folder.name)
        mounts += [("mkdir", "", place, ""), ("bind", str(folder), place, "")]
    return mounts


def _own_folder(folder: Path, staging: Path, keep: Iterable[Path], *, mode: int) -> list[Mount]:
    """Return the mounts that replace ``folder`` by an empty one.

    The paths of ``keep`` stay visible in it.
    """
    staging.mkdir()
    # Not by mkdir's mode, from which the umask removes bits.
    staging.chmod(mode)
    below = {path for path in keep if path.is_relative_to(folder) and path != folder}
    # A folder inside another one that stays visible is visible with it.
    outermost = sorted(
        path for path in below if not any(parent in below for parent in path.parents)
    )
    mounts: list[Mount] = []
    for path in outermost:
        target = staging / path.relative_to(folder)
        make_mount_point(path, target, within=staging)
        mounts.append(("bind", str(path), str(target), ""))
    return [*mounts, ("bind", str(staging), str(folder), "")]


def _closed_folders(keep: Iterable[Path]) -> list[Path]:
    """Return the folders right below ``/`` that hide paths of ``keep`` from other users.

    ``/root`` is one.
    """
    folders = {Path("/", path.parts[1]) for path in keep if len(path.parts) > 2}
    return sorted(folder for folder in folders if not folder.stat().st_mode & 0o001)
