"""How both ends of a connection prove that they have the job's token, before anything else is sent on it.

::

    server  GREETING N                          N: 32 fresh random bytes, to any caller
    client  M HMAC(token, "client" N M port)    M: 32 fresh random bytes
    server  HMAC(token, "server" N M port)      only after the client has proved itself

The token never crosses the wire. A recorded proof is worth nothing later, since both numbers are new each time, and
nothing at another port, since the port of the server is part of it. After that the connection carries whatever its two
ends like, unencrypted. Standard library alone.
"""

import asyncio
import hmac
import secrets
import socket

__all__ = ["HANDSHAKE_S", "NotProved", "connect_proved", "prove_client", "prove_server"]

GREETING = b"raysm 1\n"
NONCE_BYTES = 32
PROOF_BYTES = 32
HANDSHAKE_S = 10.0
"""Seconds that a caller has to prove itself."""


class NotProved(ConnectionError):
    """The other end does not know the job's token."""


async def connect_proved(host: str, port: int, *, token: str, server_port: int) -> socket.socket:
    """Return a connection whose other end has proved that it has the token.

    Args:
        host: Where to connect to: this machine, where the server or a tunnel to it listens.
        port: There.
        token: The job's.
        server_port: Where the server itself listens, on its own loopback.

    Raises:
        NotProved: What listens there does not know the token; it was not told.
        OSError: Nothing answers.
    """
    connection = socket.socket()
    connection.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connection, (host, port))
        await prove_client(connection, token.encode(), server_port)
    except BaseException as error:
        connection.close()
        if isinstance(error, NotProved):
            raise NotProved(f"what listens at {host}, port {port}, is not the job's session: {error}") from None
        raise
    return connection


async def prove_client(connection: socket.socket, token: bytes, server_port: int) -> None:
    """Do the client's part on a non-blocking socket.

    Raises:
        NotProved: The server does not know the token.
        OSError: The connection broke.
    """
    loop = asyncio.get_running_loop()
    greeting = await _receive(connection, len(GREETING) + NONCE_BYTES)
    if not greeting.startswith(GREETING):
        raise NotProved("it speaks another protocol")
    theirs, mine = greeting[len(GREETING) :], secrets.token_bytes(NONCE_BYTES)
    await loop.sock_sendall(connection, mine + _proof(token, b"client", theirs, mine, server_port))
    proof = await _receive(connection, PROOF_BYTES)
    if not hmac.compare_digest(proof, _proof(token, b"server", theirs, mine, server_port)):
        raise NotProved("it does not know the job's token")


async def prove_server(connection: socket.socket, token: bytes, server_port: int) -> None:
    """Do the server's part on a non-blocking socket.

    Raises:
        NotProved: The client does not know the token.
        OSError: The connection broke.
    """
    loop = asyncio.get_running_loop()
    mine = secrets.token_bytes(NONCE_BYTES)
    await loop.sock_sendall(connection, GREETING + mine)
    answer = await _receive(connection, NONCE_BYTES + PROOF_BYTES)
    theirs, proof = answer[:NONCE_BYTES], answer[NONCE_BYTES:]
    # The client proves itself first: a stranger gets nothing that it could try tokens on.
    if not hmac.compare_digest(proof, _proof(token, b"client", mine, theirs, server_port)):
        raise NotProved("a caller does not know the job's token")
    await loop.sock_sendall(connection, _proof(token, b"server", mine, theirs, server_port))


def _proof(token: bytes, role: bytes, of_server: bytes, of_client: bytes, server_port: int) -> bytes:
    # The parts have fixed lengths, but for the last one: no two lists of parts look the same.
    return hmac.digest(token, b"raysm session " + role + of_server + of_client + b"%d" % server_port, "sha256")


async def _receive(connection: socket.socket, count: int) -> bytes:
    """Return exactly ``count`` bytes: what follows belongs to whoever reads the connection next."""
    content = b""
    while len(content) < count:
        piece = await asyncio.get_running_loop().sock_recv(connection, count - len(content))
        if not piece:
            raise ConnectionResetError("the other end closed the connection during the handshake")
        content += piece
    return content
