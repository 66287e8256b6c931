"""Copy bytes between two sockets."""

import contextlib
import socket
import threading

CHUNK_BYTES = 1 << 18


def relay(one: socket.socket, other: socket.socket) -> None:
    """Copy bytes in both directions until both have ended, then close both sockets."""
    with one, other:
        back = threading.Thread(target=_pass_on, args=(other, one), name="relay", daemon=True)
        back.start()
        _pass_on(one, other)
        back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(CHUNK_BYTES):
            target.sendall(data)
    except OSError:
        # A broken direction breaks the other one too.
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        return
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
