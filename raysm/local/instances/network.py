"""A private network for the instances of one job, of which nothing outlives the job.

::

    this machine            switch (a namespace)          instance (a namespace each)
    raysm231-7 ─────veth───── uplink ┐
    10.231.7.1/24                    ├─ bridge ─ algo-1 ──veth── eth0  10.231.7.11/24
                                     │  10.231.7.254 (the instances' default gateway)
                                     └─────────  algo-2 ──veth── eth0  10.231.7.12/24

No namespace has a name, none is mounted anywhere: each lives as long as the keeper process in it, which ends when its
stdin closes. The kernel then removes the bridge and both ends of every pair. No firewall rule is made; since the bridge
has a namespace of its own, neither do this machine's rules for bridges apply to it.

Instances have a default route, because programs find their own address by it: Ray and others ask the kernel which
address it would use for 8.8.8.8. The gateway forwards nothing and refuses every connection at once.

The name of this machine's end is the claim on the /24: the kernel refuses to make the same name twice.
"""

import contextlib
import ctypes
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from raysm.contract.packages import default_index
from raysm.errors import InvalidRequest, RaysmError
from raysm.local.instances.base import to_loopback
from raysm.local.instances.kept import Keeper
from raysm.local.scenario import Scenario

__all__ = ["HostNames", "MAX_INSTANCES", "Network", "connect_inside", "missing_for_namespaces"]

NOBODY = "192.0.2.1"
"""An address that is kept for documents (RFC 5737): nothing answers there."""


class HostNames:
    """The name files of the instances of one job."""

    def __init__(self, addresses: Mapping[str, str], scenario: Scenario) -> None:
        """Name ``addresses``, by host, as a scenario's network does."""
        self._addresses = addresses
        self._switches = scenario.network
        self._host_name = scenario.container.hostname
        self._later: list[threading.Timer] = []

    def write(self, path: Path, own_name: str) -> None:
        """Write the file of the instance ``own_name``; it gains the names that come late when they do."""
        late_s = self._switches.names_resolve_after_s
        path.write_text(self.text(own_name, with_hosts=not late_s))
        if late_s:
            # In place, not beside and renamed: the file is mounted, and a mount stays with the file that it is of.
            timer = threading.Timer(late_s, path.write_text, [self.text(own_name, with_hosts=True)])
            timer.daemon = True
            timer.start()
            self._later.append(timer)

    def text(self, own_name: str, *, with_hosts: bool) -> str:
        """Return what the file of ``own_name`` says, with or without the other instances."""
        names = {"localhost": "127.0.0.1"}
        if with_hosts:
            names |= self._addresses
        # A container's runtime writes its host name into its /etc/hosts: torch's gloo finds its own address by it.
        names.setdefault(self._host_name, self._addresses[own_name])
        if self._switches.own_name_is_loopback:
            names[own_name] = "127.0.0.1"
        if self._switches.silent_internet:
            # Without pip on this machine the instances, which run its Python, ask no index.
            index = default_index()
            names |= dict.fromkeys(index.hosts if index else (), NOBODY)
        return "".join(f"{address} {name}\n" for name, address in names.items())

    def close(self) -> None:
        """Write nothing more."""
        for timer in self._later:
            timer.cancel()


T = TypeVar("T")

MAX_INSTANCES = 240
"""Addresses .11 to .250 of the /24."""
FIRST_ADDRESS = 11
INTERFACE = "eth0"
RANGES = ("10.231", "198.18")
"""Where the /24s are taken from: a corner of a private range, then the range for testing network devices."""
CLONE_NEWNET = 0x40000000
PROBE_S = 5.0
"""A connection over a bridge takes well under a millisecond; a firewall's DROP takes for ever."""


def missing_for_namespaces() -> str | None:
    """Return what this machine lacks for instances of kind ``namespace``, as a sentence; None if it lacks nothing."""
    if not sys.platform.startswith("linux"):
        return f"instances of kind 'namespace' need Linux, this is {sys.platform}; use kind 'process'"
    if os.geteuid() != 0:
        return "instances of kind 'namespace' need root; run as root, or use kind 'process'"
    if shutil.which("ip") is None:
        return "instances of kind 'namespace' need the command 'ip'; install iproute2, or use kind 'process'"
    libc = ctypes.CDLL(None, use_errno=True)
    # Tried for real, as root in a container may lack the right; in a thread, as this process is to stay where it is.
    refused = in_thread(lambda: ctypes.get_errno() if libc.unshare(CLONE_NEWNET) != 0 else 0)
    if refused:
        return (
            f"this machine refuses to make network namespaces ({os.strerror(refused)}), which instances of kind "
            "'namespace' need: a container wants --privileged for that; or use kind 'process'"
        )
    return None


def in_thread(function: Callable[[], T]) -> T:
    """Run ``function`` in a thread that ends with it: namespaces that it enters are that thread's alone."""
    outcome: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="in a namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return outcome[0]


class Network:
    """The switch, and this machine's link to it; a context manager.

    Attributes:
        prefix: The first three numbers of every address, ``10.231.7``.
    """

    def __init__(self) -> None:
        """Make the switch and claim a /24.

        Raises:
            InvalidRequest: This machine cannot do it.
            RaysmError: There is no /24 left, or ``ip`` failed.
        """
        missing = missing_for_namespaces()
        if missing:
            raise InvalidRequest(missing)
        self._ip = shutil.which("ip") or "ip"
        self._link: str | None = None
        self._switch = Keeper("network")
        try:
            self._switch.call("unshare")
            self._in_switch("link add bridge type bridge forward_delay 0 mcast_snooping 0", "link set bridge up")
            self.prefix = self._claim()
            self._in_switch(
                "link set uplink master bridge up",
                f"addr add {self.gateway}/24 dev bridge",
                # The switch takes all foreign addresses for its own. Nothing listens there, so its kernel refuses.
                "link set lo up",
                "route add local default dev lo table main",
            )
            self._run("addr", "add", f"{self.prefix}.1/24", "dev", str(self._link))
            self._run("link", "set", str(self._link), "up", "alias", f"raysm, owner {os.getpid()}")
        except BaseException:
            self.close()
            raise

    def _in_switch(self, *commands: str) -> None:
        self._switch.call("ip", commands=[[self._ip, *command.split()] for command in commands])

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([self._ip, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RaysmError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _claim(self) -> str:
        """Make this machine's end of the uplink under a name that says which /24 it has."""
        for prefix in self._free_prefixes():
            second, third = prefix.split(".")[1:]
            name = f"raysm{second}-{third}"
            try:
                self._run(
                    *f"link add {name} type veth peer name uplink netns {self._switch.pid}".split(),
                )
            except RaysmError as error:
                # Decided by the kernel: between a look of ours and the making, another job could take it.
                if "File exists" in str(error):
                    continue  # another job was faster
                raise
            self._link = name
            return prefix
        raise RaysmError(f"no free /24 in {' or '.join(RANGES)}: {len(RANGES) * 256} jobs run, or routes cover them")

    def _free_prefixes(self) -> Iterator[str]:
        routes = json.loads(self._run("-4", "-json", "route", "show", "table", "all") or "[]")
        routed = []
        for route in routes:
            with contextlib.suppress(ValueError, KeyError):  # "default" is no network, and would contain them all
                routed.append(ipaddress.ip_network(route["dst"], strict=False))
        for start in RANGES:
            for third in range(256):
                candidate = ipaddress.ip_network(f"{start}.{third}.0/24")
                if not any(candidate.overlaps(network) for network in routed):
                    yield f"{start}.{third}"

    def address(self, number: int) -> str:
        """Return the address of instance ``number``, which counts from 0."""
        return f"{self.prefix}.{FIRST_ADDRESS + number}"

    @property
    def gateway(self) -> str:
        """Return the address of the instances' default gateway."""
        return f"{self.prefix}.254"

    def attach(self, keeper: Keeper, number: int) -> None:
        """Give the namespace of ``keeper`` its interface.

        Raises:
            RaysmError: ``ip`` failed.
        """
        port = f"port{number}"
        self._in_switch(
            f"link add {port} type veth peer name {INTERFACE} netns {keeper.pid}", f"link set {port} master bridge up"
        )
        inside = (
            # A new namespace's loopback is down.
            "link set lo up",
            f"addr add {self.address(number)}/24 dev {INTERFACE}",
            f"link set {INTERFACE} up",
            f"route add default via {self.gateway} dev {INTERFACE}",
        )
        keeper.call("ip", commands=[[self._ip, *command.split()] for command in inside])

    def silence_gateway(self, keepers: Sequence[Keeper]) -> None:
        """Have the gateway drop what it gets, as in a VPC without NAT, instead of refusing it."""
        # A fixed entry for a neighbor that does not exist: without one, a connection fails after three seconds of ARP.
        command = f"neigh replace {self.gateway} lladdr 02:00:00:00:00:fe dev {INTERFACE} nud permanent"
        for keeper in keepers:
            keeper.call("ip", commands=[[self._ip, *command.split()]])

    def probe(self, keepers: Sequence[Keeper], patience_s: float = PROBE_S) -> None:
        """Connect for real: from each instance, and from this machine, to the first one.

        Args:
            keepers: Of the instances, in the order of their numbers.
            patience_s: How long to try each.

        Raises:
            RaysmError: A connection fails; the message says between whom, and what to look for.
        """
        # A socket stays in the namespace in which it was made, also when the thread that entered it is gone.
        with contextlib.closing(in_thread(lambda: _listen(keepers[0].pid, self.address(0)))) as listener:
            target = listener.getsockname()
            # Rules of firewalls differ for what is bridged and what this machine itself sends.
            for caller in [None, *keepers[1:]]:
                error = in_thread(lambda caller=caller: _connect(caller.pid if caller else None, target, patience_s))  # type: ignore[misc]
                if error is not None:
                    raise RaysmError(
                        f"{caller.name if caller else 'this machine'} cannot connect to {keepers[0].name} at "
                        f"{target[0]}: {error}; a firewall of this machine drops it (look for rules on {self._link} "
                        "and on bridged traffic: net.bridge.bridge-nf-call-iptables), or use kind 'process'"
                    )

    def close(self) -> None:
        """Remove all of it; harmless when repeated."""
        if self._link is not None:
            # The kernel would remove it with the switch, a moment after: here it is gone on return.
            subprocess.run([self._ip, "link", "delete", self._link], capture_output=True, check=False)
            self._link = None
        self._switch.end()

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def connect_inside(keeper: Keeper, port: int) -> socket.socket:
    """Return a connection to a port on the loopback of an instance.

    Raises:
        OSError: Nobody listens there, or the instance is gone.
    """

    def connect() -> socket.socket:
        _enter(keeper.pid)
        return to_loopback(port)

    # A socket stays in the namespace in which it was made, also when the thread that entered it is gone.
    return in_thread(connect)


def _enter(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{pid}/ns/net", "rb") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}")


def _listen(pid: int, address: str) -> socket.socket:
    _enter(pid)
    listener = socket.socket()
    try:
        listener.bind((address, 0))
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


def _connect(pid: int | None, target: Any, patience_s: float) -> str | None:
    """Connect from the namespace of ``pid`` (None: from here); return why not."""
    if pid is not None:
        _enter(pid)
    deadline = time.monotonic() + patience_s
    while True:
        try:
            socket.create_connection(target, timeout=max(deadline - time.monotonic(), 0.1)).close()
            return None
        except OSError as error:
            # Until a bridge's port forwards, nobody answers for the address.
            if time.monotonic() > deadline:
                return str(error)
            time.sleep(0.05)
