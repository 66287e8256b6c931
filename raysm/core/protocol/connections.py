"""Connections to and from a job's own processes.

Check the owner of a listening port, and authenticate both ends.

Any user of a machine can listen at a free port. On Linux the kernel lists the owner of each
listening socket (https://www.kernel.org/doc/html/latest/networking/proc_net_tcp.html); on other
systems the checks of the owner do nothing. The handshake proves on every system that both ends have
the job's token.

Only ``checked_connector`` needs a package; instances use the rest before they have installed
anything.
"""

import asyncio
import contextlib
import errno
import functools
import hmac
import os
import secrets
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from raysm.errors import ForeignListener

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.client_proto import ResponseHandler


# thread-self, because a thread may have entered the network namespace of an instance.
TABLES = Path("/proc/thread-self/net")
LISTENS = "0A"
PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
ADDRESSES = {socket.AF_INET: ("0.0.0.0", "tcp"), socket.AF_INET6: ("::", "tcp6")}


def is_of_this_machine(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; the kernel only chooses the route and the
            # source address.
            probe.connect((address, 9))
        except OSError:
            return False
        source: str = probe.getsockname()[0]
    return source == address or address.startswith("127.")


def without_proxy(hosts: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which programs reach ``hosts`` without the proxy of ``environ``.

    There are none if there is no proxy.

    Ray's clients send the job's token with each HTTP request, which a proxy would read.
    """
    if not any(environ.get(name) for name in PROXIES):
        return {}
    # As for requests and curl, the name in small letters hides the other one.
    others = environ.get("no_proxy") or environ.get("NO_PROXY")
    # An asterisk means all hosts only if it stands alone.
    if others == "*":
        value = others
    else:
        value = ",".join(dict.fromkeys([*([others] if others else ()), *hosts]))
    return {"no_proxy": value, "NO_PROXY": value}


def check_listener(address: str, port: int, *, or_root: bool = False) -> frozenset[int]:
    """Return the inodes of this user's sockets that listen there.

    The result is also empty if the kernel does not list sockets.

    With ``or_root`` root may listen there too. ForeignListener: another user's process does.
    """
    if not _owners_are_listed():
        return frozenset()
    found = list(_listeners(address, port))
    trusted = (os.geteuid(), 0) if or_root else (os.geteuid(),)
    foreign = next((uid for uid, _ in found if uid not in trusted), None)
    if foreign is not None:
        raise ForeignListener(
            f"a process of another user (uid {foreign}) listens at {address}, "
            f"port {port}: nothing was sent to it"
        )
    return frozenset(inode for _, inode in found)


def has_own_listener(address: str, port: int) -> bool:
    """Return whether a process of this user listens there; ForeignListener if another user's does.

    Also True if this machine cannot know: for another machine's address, or without the kernel's
    list of owners.
    """
    if not _owners_are_listed() or not is_of_this_machine(address):
        return True
    return bool(check_listener(address, port))


def connect_to_own(
    host: str, port: int, timeout_s: float | None, *, or_root: bool = False
) -> socket.socket:
    """Return a connection to a port; at an address of this machine, only to a process of this user.

    With ``or_root`` it may be root's, for servers that this user did not start. The timeout is for
    each of the host's addresses; the connection that is returned has none.
    """
    failure: OSError = ConnectionRefusedError(f"nothing listens at {host}, port {port}")
    for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            with contextlib.ExitStack() as stack:
                with _same_listener(str(address[0]), port, or_root=or_root):
                    connection = socket.create_connection((str(address[0]), port), timeout_s)
                    stack.callback(connection.close)
                stack.pop_all()
                connection.settimeout(None)
                return connection
        except OSError as error:
            # Another user may listen at one of the host's addresses, and the job at the next one.
            failure = failure if isinstance(failure, ForeignListener) else error
    raise failure


async def open_to_own(address: str, port: int) -> socket.socket:
    """Return a non-blocking connection to a port.

    At an address of this machine, it must be to a process of this user.
    """
    connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    connection.setblocking(False)
    try:
        with _same_listener(address, port):
            await asyncio.get_running_loop().sock_connect(connection, (address, port))
    except BaseException:
        connection.close()
        raise
    return connection


@functools.cache
def _owners_are_listed() -> bool:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        try:
            own = os.geteuid(), os.fstat(probe.fileno()).st_ino
            return own in _listeners(*probe.getsockname())
        except OSError:
            return False


@contextlib.contextmanager
def _same_listener(address: str, port: int, *, or_root: bool = False) -> Iterator[None]:
    """Check before and after the body that the same socket of this user listens there.

    The body connects to it.
    """
    is_local = is_of_this_machine(address)
    before = check_listener(address, port, or_root=or_root) if is_local else None
    yield
    if is_local and check_listener(address, port, or_root=or_root) != before:
        raise ConnectionResetError(
            f"the listener at {address}, port {port}, was replaced meanwhile"
        )


def _listeners(address: str, port: int) -> Iterator[tuple[int, int]]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    wildcard, table = ADDRESSES[family]
    with contextlib.suppress(KernelSilent):
        receiver = find_socket((address, port), (wildcard, 0))
        if receiver is not None and receiver[0] == int(LISTENS, 16):
            yield receiver[1:]
            return
    found = list(_read(table, {_hex(family, address), _hex(family, wildcard)}, port))
    if not found and family == socket.AF_INET:
        # An IPv6 socket serves IPv4 as well, unless an IPv4 socket has the port.
        mapped = _hex(socket.AF_INET6, f"::ffff:{address}")
        any6 = _hex(socket.AF_INET6, "::")
        found = list(_read("tcp6", {mapped, any6}, port))
    yield from found


SOCK_DIAG = 4
BY_FAMILY = 20
REQUEST = 1
ALL = 0xFFFFFFFF
"""Numbers of linux/netlink.h and linux/sock_diag.h."""


class KernelSilent(Exception):
    """The kernel has no sock_diag(7), or does not let this process ask."""


def find_socket(local: tuple[str, int], peer: tuple[str, int]) -> tuple[int, int, int] | None:
    """Return the state, user and inode of the TCP socket with these ends; None if there is none.

    This takes 12 µs by sock_diag(7), in place of the 5 ms in which the kernel writes /proc/net/tcp.

    Raises:
        KernelSilent: The kernel cannot be asked.
    """
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    ends = [socket.inet_pton(family, address) for address, _ in (local, peer)]
    asked = struct.pack("=4BI", family, socket.IPPROTO_TCP, 0, 0, ALL)
    asked += struct.pack("!2H16s16s", local[1], peer[1], *ends) + struct.pack("=3I", 0, ALL, ALL)
    kind = getattr(socket, "AF_NETLINK", -1)
    try:
        with socket.socket(kind, socket.SOCK_DGRAM, SOCK_DIAG) as kernel:
            kernel.send(struct.pack("=I2H2I", 16 + len(asked), BY_FAMILY, REQUEST, 0, 0) + asked)
            answer = kernel.recv(4096)
    except OSError as error:
        raise KernelSilent from error
    if struct.unpack_from("=H", answer, 4)[0] == BY_FAMILY:
        return (answer[17], *struct.unpack_from("=2I", answer, 80))
    # The other kind of answer is an error, as a negative number.
    number = -struct.unpack_from("=i", answer, 16)[0]
    if number != errno.ENOENT:
        raise KernelSilent(os.strerror(number))
    return None


def _read(table: str, addresses: set[str], port: int) -> Iterator[tuple[int, int]]:
    # A kernel without IPv6 has no tcp6.
    with contextlib.suppress(FileNotFoundError), (TABLES / table).open(encoding="ascii") as lines:
        next(lines)
        for line in lines:
            columns = line.split()
            local, _, number = columns[1].partition(":")
            if columns[3] == LISTENS and int(number, 16) == port and local in addresses:
                yield int(columns[7]), int(columns[9])


def _hex(family: int, address: str) -> str:
    """Return an address as the tables write it: 32-bit words, each in this machine's byte order."""
    packed = socket.inet_pton(family, address)
    words = [
        int.from_bytes(packed[start : start + 4], sys.byteorder)
        for start in range(0, len(packed), 4)
    ]
    return "".join(f"{word:08X}" for word in words)


TURNS = 3
"""Iterations of the event loop between accepting a connection and creating its transport."""


async def accept_no_more(listeners: Iterable[Any]) -> None:
    """Accept no more connections, and wait until the server has a transport for each accepted one.

    asyncio (until Python 3.12) leaves the others open, and warns on stderr when they are garbage
    collected.
    """
    loop = asyncio.get_running_loop()
    for listener in listeners:
        loop.remove_reader(listener)
    for _ in range(TURNS):
        await asyncio.sleep(0)


OpenConnection: TypeAlias = Callable[[str, int], Awaitable[socket.socket]]


def checked_connector(open_connection: OpenConnection) -> "aiohttp.BaseConnector":
    import aiohttp

    class Connector(aiohttp.BaseConnector):
        # A private method, but the one that all connectors of aiohttp implement.
        async def _create_connection(
            self, req: aiohttp.ClientRequest, traces: object, timeout: aiohttp.ClientTimeout
        ) -> "ResponseHandler":
            async with asyncio.timeout(timeout.sock_connect):
                connection = await open_connection(req.url.host or "", req.url.port or 0)
            try:
                _, protocol = await self._loop.create_connection(self._factory, sock=connection)
            except BaseException:
                connection.close()
                raise
            return protocol

    # With aiohttp's default limit, 100 waiting calls would block all others.
    return Connector(limit=0)


GREETING = b"raysm 1\n"
NONCE_BYTES = 32
PROOF_BYTES = 32
HANDSHAKE_S = 10.0


class NotProved(ConnectionError):
    """The other end does not know the job's token."""


async def connect_proved(host: str, port: int, *, token: str, server_port: int) -> socket.socket:
    """Return a connection whose other end has proved that it has the token.

    The server itself listens at ``server_port`` of its own loopback, perhaps behind a tunnel.
    NotProved: the other end does not know the token, and has not learned it either.
    """
    connection = socket.socket()
    connection.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connection, (host, port))
        await prove_client(connection, token.encode(), server_port)
    except BaseException as error:
        connection.close()
        if isinstance(error, NotProved):
            raise NotProved(
                f"what listens at {host}, port {port}, is not the job's session: {error}"
            ) from None
        raise
    return connection


async def prove_client(connection: socket.socket, token: bytes, server_port: int) -> None:
    """Run the client's part of the handshake on a non-blocking socket.

    Raises:
        NotProved: The server lacks the token.
    """
    loop = asyncio.get_running_loop()
    greeting = await _receive(connection, len(GREETING) + NONCE_BYTES)
    if not greeting.startswith(GREETING):
        raise NotProved("it speaks another protocol")
    theirs = greeting[len(GREETING) :]
    mine = secrets.token_bytes(NONCE_BYTES)
    await loop.sock_sendall(connection, mine + _proof(token, b"client", theirs, mine, server_port))
    proof = await _receive(connection, PROOF_BYTES)
    if not hmac.compare_digest(proof, _proof(token, b"server", theirs, mine, server_port)):
        raise NotProved("it does not know the job's token")


async def prove_server(connection: socket.socket, token: bytes, server_port: int) -> None:
    """Run the server's part of the handshake on a non-blocking socket.

    Raises:
        NotProved: The client lacks the token.
    """
    loop = asyncio.get_running_loop()
    mine = secrets.token_bytes(NONCE_BYTES)
    await loop.sock_sendall(connection, GREETING + mine)
    answer = await _receive(connection, NONCE_BYTES + PROOF_BYTES)
    theirs = answer[:NONCE_BYTES]
    proof = answer[NONCE_BYTES:]
    # The client proves itself first, so that an attacker gets no proof to test guessed tokens with.
    if not hmac.compare_digest(proof, _proof(token, b"client", mine, theirs, server_port)):
        raise NotProved("a caller does not know the job's token")
    await loop.sock_sendall(connection, _proof(token, b"server", mine, theirs, server_port))


def _proof(
    token: bytes, role: bytes, of_server: bytes, of_client: bytes, server_port: int
) -> bytes:
    # All parts before the port have fixed lengths, so two different lists of parts never give the
    # same message.
    return hmac.digest(
        token, b"raysm session " + role + of_server + of_client + b"%d" % server_port, "sha256"
    )


async def _receive(connection: socket.socket, count: int) -> bytes:
    """Receive exactly ``count`` bytes; later ones stay for the next reader of the connection."""
    content = b""
    while len(content) < count:
        piece = await asyncio.get_running_loop().sock_recv(connection, count - len(content))
        if not piece:
            raise ConnectionResetError("the other end closed the connection during the handshake")
        content += piece
    return content
