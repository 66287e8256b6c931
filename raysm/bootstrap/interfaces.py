"""The network interfaces of this instance, and which of them the other instances reach it by.

What flows in are what the kernel says, what flows out are names and IPv4 addresses. A host's own name is asked last:
AWS writes of a container's ``/etc/hosts`` that it may be inaccurate, and on SageMaker every host is called ``aws``.
"""

import contextlib
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Interface", "choose_interface", "default_route", "list_interfaces"]

# The standard library alone, ioctl too: this runs before anything is installed in the instance.
SIOCGIFADDR = 0x8915
ROUTES = Path("/proc/net/route")
IS_UP = 1
"""Linux's RTF_UP."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface that has an address."""

    name: str
    """``eth0``."""
    address: str
    """Its IPv4 address."""


def list_interfaces() -> tuple[Interface, ...]:
    """Return the interfaces that have an IPv4 address; none on other systems than Linux."""
    if sys.platform != "linux":
        return ()
    named = [(name, _address(name)) for _, name in socket.if_nameindex()]
    return tuple(Interface(name, address) for name, address in named if address is not None)


def _address(interface: str) -> str | None:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # IFNAMSIZ is 16, with the NUL behind the name.
            answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    # struct ifreq: 16 bytes of name, then a sockaddr_in, whose address follows its family and port.
    return socket.inet_ntoa(answer[20:24])


def default_route(routes: Path = ROUTES) -> str | None:
    """Return the name of the interface by which this instance reaches what is far away; None where there is none."""
    candidates: list[tuple[int, str]] = []
    with contextlib.suppress(OSError):
        for line in routes.read_text(encoding="ascii", errors="replace").splitlines()[1:]:
            columns = line.split()
            with contextlib.suppress(ValueError, IndexError):
                destination, flags, metric, mask = columns[1], int(columns[3], 16), int(columns[6]), columns[7]
                if int(destination, 16) == int(mask, 16) == 0 and flags & IS_UP:
                    candidates.append((metric, columns[0]))
    return min(candidates)[1] if candidates else None


def choose_interface(
    interfaces: Sequence[Interface], *, named: str | None, own_name: str | None, default: str | None
) -> Interface | None:
    """Return the interface by which the other instances most likely reach this one; None if there is only loopback.

    Args:
        interfaces: All of this instance, in the kernel's order.
        named: The one that the service names; a Processing job is told none.
        own_name: The address that this host's name resolves to here; None where it does not, or nobody asked.
        default: The one of the default route.
    """
    reachable = [item for item in interfaces if not item.address.startswith("127.")]

    def rank(item: Interface) -> tuple[bool, bool, bool]:
        return item.name != named, item.address != own_name, item.name != default

    # The first of equals: on a machine with many, the kernel numbered the primary one first.
    return min(reachable, key=rank, default=None)
