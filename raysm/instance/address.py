"""Resolve host names, find this instance's own address, and check that ports answer.

Names of instances can resolve late, so callers retry with ``backoff``.
"""

import asyncio
import contextlib
import ipaddress
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raysm.core.protocol.connections import has_own_listener
from raysm.errors import ForeignListener

SIOCGIFADDR = 0x8915
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Interface:
    name: str
    address: str


def list_interfaces() -> tuple[Interface, ...]:
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


def default_address() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):
            # Connecting a datagram socket sends nothing; the kernel only chooses the route and the
            # source address.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
    return None


def choose_interface(
    interfaces: Sequence[Interface], *, named: str | None, own_name: str | None, default: str | None
) -> Interface | None:
    """Return the interface that other instances most likely use; None with only loopback."""
    reachable = [item for item in interfaces if not item.address.startswith("127.")]

    def rank(item: Interface) -> tuple[bool, bool, bool]:
        return item.name != named, item.address != own_name, item.address != default

    # The kernel numbers the primary interface first.
    return min(reachable, key=rank, default=None)


FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 1.0
CONNECT_TIMEOUT_S = 5.0
OWN_NAME_S = 2.0
"""Seconds to resolve an instance's own name, which SageMaker writes into /etc/hosts."""
PEER_NAME_S = 10.0
"""Seconds to resolve another instance's name before trying again."""


class MisleadingName(OSError):
    """A name resolves to an address that cannot be right."""


def backoff(attempt: int) -> float:
    """Return the seconds to wait after the ``attempt``-th failure: 0.05, 0.08, … up to 1."""
    # min(): after some 1,500 attempts the power would overflow a float.
    return float(min(LONGEST_WAIT_S, FIRST_WAIT_S * 1.6 ** min(attempt, 20)))


async def resolve(host: str, lookup: Callable[[str], str] = socket.gethostbyname) -> str:
    """Return the IPv4 address of ``host``.

    The address is looked up in a daemon thread, because a resolver can outlast the job.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def settle(address: str | None, error: OSError | None) -> None:
        if answer.done():  # the caller has given up
            return
        if address is None:
            answer.set_exception(error or OSError(f"the name {host} does not resolve"))
        else:
            answer.set_result(address)

    def run() -> None:
        address = None
        cause = None
        try:
            address = lookup(host)
        except OSError as error:
            cause = error
        except UnicodeError as error:  # DNS allows no name that is too long or has an empty part
            cause = OSError(str(error))
        # The loop is closed, and the answer is no longer needed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, address, cause)

    # asyncio's own getaddrinfo uses the executor, and at its exit the interpreter waits for the
    # executor's threads.
    threading.Thread(target=run, daemon=True, name=f"resolve-{host}").start()
    return await answer


async def port_answers(address: str, port: int) -> bool:
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(address, port), CONNECT_TIMEOUT_S
        )
    except (TimeoutError, OSError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def own_port_answers(address: str, port: int) -> bool:
    """Return whether a process of the job accepts connections there.

    At an address of this machine it must be a process of this user, because another user's could
    steal the token.
    """
    try:
        # Connect first, because the kernel's list of listeners takes 10 ms to read.
        return await port_answers(address, port) and has_own_listener(address, port)
    except ForeignListener:
        return False


async def find_own_address(
    host: str,
    named: str | None,
    shared_interface: str | None,
    interfaces: Callable[[], Sequence[Interface]] = list_interfaces,
    lookup: Callable[[str], str] = socket.gethostbyname,
) -> str | None:
    """Return the IP address at which others find this instance; None if only loopback is known."""
    if named is not None:
        return await _reachable_address(named, lookup)
    all_interfaces = interfaces()
    candidates = {item.name for item in all_interfaces if not is_loopback(item.address)}
    # This instance's name may resolve late, to loopback, or to an old address, so it is looked up
    # only if needed.
    undecided = len(candidates) != 1 and shared_interface not in candidates
    own_name = await _reachable_address(host, lookup) if undecided else None
    chosen = choose_interface(
        all_interfaces,
        named=shared_interface,
        own_name=own_name,
        default=default_address() if undecided else None,
    )
    # Without a list of interfaces, as on macOS, only the name's address is known.
    return own_name if chosen is None else chosen.address


async def _reachable_address(name: str, lookup: Callable[[str], str]) -> str | None:
    try:
        address = await asyncio.wait_for(resolve(name, lookup), OWN_NAME_S)
    except (TimeoutError, OSError):
        return None
    return None if is_loopback(address) else address


async def resolve_peer(host: str, lookup: Callable[[str], str] = socket.gethostbyname) -> str:
    """Return the IPv4 address of another instance.

    Raises:
        OSError: Its name is unknown, or is that of this instance.
    """
    try:
        address = await asyncio.wait_for(resolve(host, lookup), PEER_NAME_S)
    except TimeoutError:
        raise socket.gaierror(f"no resolver answers for {host}") from None
    if is_loopback(address):
        raise MisleadingName(
            f"the name {host} resolves to {address} here, which is this instance itself"
        )
    return address


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def explain(error: BaseException, host: str, port: int) -> str:
    """Return a message about why ``host`` could not be reached, and what that most likely means."""
    match error:
        case socket.gaierror():
            return f"the name {host} does not resolve"
        case MisleadingName():
            return str(error)
        case ConnectionRefusedError():
            return f"{host} refuses connections on port {port}: nothing listens there"
        case TimeoutError():
            return (
                f"{host} does not answer on port {port}: "
                "a firewall or security group may drop the packets"
            )
    return f"{host}, port {port}: {error or type(error).__name__}"
