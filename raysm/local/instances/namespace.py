"""Instances as Linux namespaces: each with its own address, ``/opt/ml``, ``/dev/shm``, ``/tmp`` and PID 1.

They need Linux and root. They are separated as SageMaker's instances are, so that what works here works there. They do
not contain malicious code, which is root on this machine.
"""

import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

from raysm.contract.paths import DEFAULT_BASE, kernels_folder
from raysm.errors import InvalidRequest
from raysm.local.instances import mounts
from raysm.local.instances.base import Instance, InstanceSpec, Site, open_to_all
from raysm.local.instances.kept import Keeper, KeptInstance, end_all
from raysm.local.instances.network import (
    INTERFACE,
    MAX_INSTANCES,
    HostNames,
    Network,
    connect_inside,
    missing_for_namespaces,
)
from raysm.local.instances.process import share_variables

__all__ = ["NamespaceSite"]


class _NamespaceInstance(KeptInstance):
    """An instance with a loopback of its own."""

    def connect(self, port: int) -> socket.socket:
        """Return a connection to ``port`` on the loopback of the instance."""
        return connect_inside(self.keeper, port)


class NamespaceSite(Site):
    """A site of kind ``namespace``."""

    interface = INTERFACE
    plays = frozenset(
        {
            *(f"container.{name}" for name in ("hostname", "init", "root_mb", "read_only", "user")),
            *(f"network.{name}" for name in ("names_resolve_after_s", "own_name_is_loopback", "silent_internet")),
        }
    )

    @staticmethod
    def missing() -> str | None:
        """Return what this machine lacks for network namespaces, and the remedy; None if nothing."""
        return missing_for_namespaces()

    def __init__(self, keep: Iterable[Path] = ()) -> None:
        """Make the network.

        Args:
            keep: Paths below ``/tmp`` that instances see, beside those that Python needs.

        Raises:
            InvalidRequest: This machine cannot do it; the message says what it lacks.
            RaysmError: The network could not be made.
        """
        self._keep = [Path(path).resolve() for path in keep] + mounts.needed_by_python() + [_kernels()]
        self._keepers: list[Keeper] = []
        self._names: HostNames | None = None
        self._network = Network()

    def base_inside(self, base: Path) -> Path:
        """Return ``/opt/ml``."""
        return DEFAULT_BASE

    def start(self, specs: Sequence[InstanceSpec]) -> list[Instance]:
        """Start all instances, after having seen that they reach each other.

        Raises:
            RaysmError: One of them could not be started, or they do not reach each other.
        """
        if len(specs) > MAX_INSTANCES:
            raise InvalidRequest(f"at most {MAX_INSTANCES} instances of kind 'namespace', got {len(specs)}")
        try:
            for number, spec in enumerate(specs):
                keeper = Keeper(spec.host, spec.log_fd)
                self._keepers.append(keeper)
                # All networks before any program: what starts first may call the others at once.
                keeper.call("unshare")
                self._network.attach(keeper, number)
            # A Docker daemon's rules may drop bridged traffic: names resolve then, and connections hang.
            self._network.probe(self._keepers)
            if specs[0].scenario.network.silent_internet:
                self._network.silence_gateway(self._keepers)
            addresses = {spec.host: self._network.address(number) for number, spec in enumerate(specs)}
            self._names = HostNames(addresses, specs[0].scenario)
            return [self._start(spec, number, self._names) for number, spec in enumerate(specs)]
        except BaseException:
            self.close()
            raise

    def _start(self, spec: InstanceSpec, number: int, names: HostNames) -> Instance:
        container = spec.scenario.container
        home = _home(spec)
        hosts, resolver = spec.private / "hosts", spec.private / "resolv.conf"
        names.write(hosts, spec.host)
        # Nobody answers on the loopback's port 53: looking up a foreign name fails at once instead of after 10 s.
        resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        if container.user:
            open_to_all(spec.base)
        plan = mounts.plan(spec, keep=[*self._keep, home], hosts=hosts, resolver=resolver)
        instance = _NamespaceInstance(self._keepers[number], spec.host, self._network.address(number))
        # Ray's object store is left to the bootstrap, which sizes it to /dev/shm as it does on SageMaker.
        variables = {"HOME": str(home), **share_variables(spec.share, object_store=False), **spec.variables}
        instance.start(
            command=spec.command,
            environment=variables,
            cwd=str(home),
            affinity=spec.share.affinity,
            namespaces=True,
            hostname=container.hostname,
            init=container.init,
            user=container.user,
            mounts=plan,
        )
        return instance

    def close(self) -> None:
        """End every instance and remove the network."""
        if self._names is not None:
            self._names.close()
        end_all(self._keepers)
        self._network.close()


def _kernels() -> Path:
    """Return the folder of this machine's compiled kernels: each instance would compile them, for 4 s of a core."""
    folder = kernels_folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _home(spec: InstanceSpec) -> Path:
    """Return the instance's home: a folder of its own; that of an image's user whom nobody made one is ``/``."""
    if spec.scenario.container.user or spec.scenario.container.read_only:
        return Path("/")
    home = spec.private / "home"
    home.mkdir(exist_ok=True)
    return home
