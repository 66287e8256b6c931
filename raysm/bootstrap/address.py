"""Names to addresses, and ports that answer: with patience, because names of instances resolve late.

What flows in are host names and deadlines, what flows out are IP addresses and open connections, or an error that
says what was wrong last.
"""

import asyncio
import contextlib
import ipaddress
import socket
import struct
import sys
import threading
from collections.abc import Callable

__all__ = ["backoff", "explain", "find_own_address", "interface_address", "is_loopback", "port_answers", "resolve"]

# The standard library alone, ioctl too: this runs before anything is installed in the instance.
FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 1.0
CONNECT_TIMEOUT_S = 5.0
OWN_NAME_S = 2.0
"""Seconds for an instance's own name: on SageMaker it stands in /etc/hosts, and elsewhere the interface will do."""
SIOCGIFADDR = 0x8915


def backoff(attempt: int) -> float:
    """Return the seconds to wait after the ``attempt``-th failure: 0.05, 0.08, … up to 1."""
    # Bounded: after some 1,500 attempts the power would be larger than any float.
    return float(min(LONGEST_WAIT_S, FIRST_WAIT_S * 1.6 ** min(attempt, 20)))


async def resolve(host: str, lookup: Callable[[str], str] = socket.gethostbyname) -> str:
    """Return the IPv4 address of ``host``.

    The lookup runs in a thread that nobody waits for: a resolver may hang for longer than the job has left.

    Raises:
        OSError: It is not known, yet.
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

    def look_up() -> None:
        address, cause = None, None
        try:
            address = lookup(host)
        except OSError as error:
            cause = error
        except UnicodeError as error:  # of a name that DNS cannot carry, too long or with an empty part
            cause = OSError(str(error))
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants the answer any more
            loop.call_soon_threadsafe(settle, address, cause)

    # asyncio's own getaddrinfo runs in the executor, whose threads the interpreter waits for at its end.
    threading.Thread(target=look_up, daemon=True, name=f"resolve-{host}").start()
    return await answer


async def port_answers(address: str, port: int) -> bool:
    """Return whether something accepts connections there."""
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(address, port), CONNECT_TIMEOUT_S)
    except (TimeoutError, OSError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def find_own_address(host: str, named: str | None, interface: str | None) -> str | None:
    """Return the IP address at which others find this instance; None if only loopback is known.

    Args:
        host: This instance's name.
        named: The address, or another name, that it was told to have; None where it was told none.
        interface: The network interface that the instances share.
    """
    address: str | None = None
    with contextlib.suppress(TimeoutError, OSError):
        address = await asyncio.wait_for(resolve(named or host), OWN_NAME_S)
    if named is None and interface and (address is None or is_loopback(address)):
        # A container's own name may resolve to loopback, or not yet: the shared interface knows better.
        address = interface_address(interface)
    return None if address is None or is_loopback(address) else address


def is_loopback(address: str) -> bool:
    """Return whether an IP address is this machine's own to itself."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def interface_address(interface: str) -> str | None:
    """Return the IPv4 address of a network interface; None where it has none, or on other systems than Linux."""
    if sys.platform != "linux":
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # IFNAMSIZ is 16, with the NUL behind the name.
            answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    # struct ifreq: 16 bytes of name, then a sockaddr_in, whose address follows its family and port.
    return socket.inet_ntoa(answer[20:24])


def explain(error: BaseException, host: str, port: int) -> str:
    """Say for people why ``host`` could not be reached, and what that most likely means."""
    match error:
        case socket.gaierror():
            return f"the name {host} does not resolve"
        case ConnectionRefusedError():
            return f"{host} refuses connections on port {port}: nothing listens there"
        case TimeoutError():
            return f"{host} does not answer on port {port}: a firewall or security group may drop the packets"
    return f"{host}, port {port}: {error or type(error).__name__}"
