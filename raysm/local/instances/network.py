"""The private network of one job's instances, and their host names.

::

    this machine            switch (a namespace)          instance (a namespace each)
    raysm231-7 ─────veth───── uplink ┐
    10.231.7.1/24                    ├─ bridge ─ algo-1 ──veth── eth0  10.231.7.11/24
                                     │  10.231.7.254 (the instances' default gateway)
                                     └─────────  algo-2 ──veth── eth0  10.231.7.12/24

The namespaces have no names and are not mounted anywhere: each lives as long as the keeper process
in it, which ends when its stdin closes. The kernel then removes the bridge and both ends of every
pair. No firewall rule is made, and this machine's rules for bridges do not apply, because the
bridge is in a namespace of its own.

Instances have a default route, because programs find their own address by it: Ray and others ask
the kernel which address it would use for 8.8.8.8. The gateway forwards nothing and refuses every
connection at once.

The name of this machine's end claims the /24: the kernel refuses to make the same name twice.
"""

import contextlib
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from raysm.core.protocol.packages import default_index
from raysm.errors import InvalidRequest, RaysmError
from raysm.local.instances import kernel
from raysm.local.instances.base import HOST_NAME, to_loopback
from raysm.local.instances.kept_instance import Keeper
from raysm.local.scenario import Scenario

T = TypeVar("T")

MAX_INSTANCES = 240
"""Addresses .11 to .250 of the /24."""
FIRST_ADDRESS = 11
INTERFACE = "eth0"
RANGES = ("10.231", "198.18")
"""The /24s are taken from a corner of a private range, then from the range for testing network
devices."""
SILENT_ADDRESS = "192.0.2.1"
"""An address reserved for documentation (RFC 5737): nothing answers there."""


class HostNames:
    def __init__(self, addresses: Mapping[str, str], scenario: Scenario) -> None:
        self._addresses = addresses
        self._switches = scenario.network
        self._timers: list[threading.Timer] = []

    def write(self, path: Path, own_name: str) -> None:
        """Write the file of the instance ``own_name``; names that resolve late are added later."""
        late_s = self._switches.names_resolve_after_s
        path.write_text(self.text(own_name, with_hosts=not late_s))
        if late_s:
            # In place, because a mount stays with the file that was mounted.
            timer = threading.Timer(late_s, path.write_text, [self.text(own_name, with_hosts=True)])
            timer.daemon = True
            timer.start()
            self._timers.append(timer)

    def text(self, own_name: str, *, with_hosts: bool) -> str:
        """Return the file of ``own_name``, with or without the instances' names."""
        names = {"localhost": "127.0.0.1"}
        if with_hosts:
            names |= self._addresses
        # Container runtimes do the same: torch's gloo finds its own address by the host name.
        names.setdefault(HOST_NAME, self._addresses[own_name])
        if self._switches.silent_internet:
            # Without pip on this machine there is no index to ask.
            index = default_index()
            names |= dict.fromkeys(index.hosts if index else (), SILENT_ADDRESS)
        return "".join(f"{address} {name}\n" for name, address in names.items())

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()


def missing_for_namespaces() -> str | None:
    if not sys.platform.startswith("linux"):
        return (
            f"instances of kind 'namespace' need Linux, this is {sys.platform}; use kind 'process'"
        )
    if os.geteuid() != 0:
        return "instances of kind 'namespace' need root; run as root, or use kind 'process'"
    if shutil.which("ip") is None:
        return (
            "instances of kind 'namespace' need the command 'ip'; install iproute2, or use kind "
            "'process'"
        )
    try:
        # Root in a container may lack the right. In a thread, so that this process stays in its
        # namespace.
        in_thread(lambda: kernel.call("unshare", kernel.CLONE_NEWNET))
    except OSError as error:
        return (
            f"this machine refuses to make network namespaces ({os.strerror(error.errno or 0)}), "
            "which instances of kind 'namespace' need; run the container with --privileged, or use "
            "kind 'process'"
        )
    return None


def in_thread(function: Callable[[], T]) -> T:
    """Run ``function`` in its own thread, so that only that thread enters namespaces."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


class Network:
    """The switch, and this machine's link to it.

    ``prefix`` has the first three numbers of every address, ``10.231.7``.
    """

    def __init__(self) -> None:
        """Make the switch and claim a /24.

        Raise RaysmError if there is none left, or ``ip`` fails.
        """
        missing = missing_for_namespaces()
        if missing:
            raise InvalidRequest(missing)
        self._ip = shutil.which("ip") or "ip"
        self._link: str | None = None
        self._switch = Keeper("network")
        try:
            self._switch.call("unshare")
            self._in_switch(
                "link add bridge type bridge forward_delay 0 mcast_snooping 0", "link set bridge up"
            )
            self.prefix = self._claim()
            self._in_switch(
                "link set uplink master bridge up",
                f"addr add {self.gateway}/24 dev bridge",
                # The switch owns all other addresses. Nothing listens on them, so its kernel
                # refuses connections.
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
        for prefix in self._free_prefixes():
            second, third = prefix.split(".")[1:]
            name = f"raysm{second}-{third}"
            try:
                self._run(
                    *f"link add {name} type veth peer name uplink netns {self._switch.pid}".split()
                )
            except RaysmError as error:
                if "File exists" in str(error):  # another job was faster
                    continue
                raise
            self._link = name
            return prefix
        raise RaysmError(
            f"no free /24 in {' or '.join(RANGES)}: {len(RANGES) * 256} jobs run, or routes cover "
            "them"
        )

    def _free_prefixes(self) -> Iterator[str]:
        routes = json.loads(self._run("-4", "-json", "route", "show", "table", "all") or "[]")
        routed = []
        for route in routes:
            with contextlib.suppress(ValueError, KeyError):  # "default" is not a network
                routed.append(ipaddress.ip_network(route["dst"], strict=False))
        for start in RANGES:
            for third in range(256):
                candidate = ipaddress.ip_network(f"{start}.{third}.0/24")
                if not any(candidate.overlaps(network) for network in routed):
                    yield f"{start}.{third}"

    def address(self, number: int) -> str:
        return f"{self.prefix}.{FIRST_ADDRESS + number}"

    @property
    def gateway(self) -> str:
        return f"{self.prefix}.254"

    def attach(self, keeper: Keeper, number: int) -> None:
        port = f"port{number}"
        self._in_switch(
            f"link add {port} type veth peer name {INTERFACE} netns {keeper.pid}",
            f"link set {port} master bridge up",
        )
        inside = (
            # The loopback of a new namespace is down.
            "link set lo up",
            f"addr add {self.address(number)}/24 dev {INTERFACE}",
            f"link set {INTERFACE} up",
            f"route add default via {self.gateway} dev {INTERFACE}",
        )
        keeper.call("ip", commands=[[self._ip, *command.split()] for command in inside])

    def silence_gateway(self, keepers: Sequence[Keeper]) -> None:
        """Have the gateway drop packets, as in a VPC without NAT.

        Without this, the gateway would refuse connections.
        """
        # A fixed entry for a neighbor that does not exist: without it, a connection fails after
        # three seconds of ARP.
        command = (
            f"neigh replace {self.gateway} lladdr 02:00:00:00:00:fe dev {INTERFACE} nud permanent"
        )
        for keeper in keepers:
            keeper.call("ip", commands=[[self._ip, *command.split()]])

    def close(self) -> None:
        if self._link is not None:
            # The kernel removes it with the switch, but a moment later.
            subprocess.run(
                [self._ip, "link", "delete", self._link], capture_output=True, check=False
            )
            self._link = None
        self._switch.end()


def connect_inside(keeper: Keeper, port: int) -> socket.socket:
    def connect() -> socket.socket:
        _enter(keeper.pid)
        return to_loopback(port)

    return in_thread(connect)


def _enter(pid: int) -> None:
    with open(f"/proc/{pid}/ns/net", "rb") as namespace:
        kernel.call("setns", namespace.fileno(), kernel.CLONE_NEWNET)
