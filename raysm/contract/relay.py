"""Bytes between two connected sockets."""

import contextlib
import socket
import threading

__all__ = ["relay"]

CHUNK_BYTES = 1 << 18


def relay(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes in both directions until both have ended, then close both sockets.

    Each direction ends by itself: after the end of a request the answer can still arrive.
    """
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
        # Nothing more can be passed on either way.
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        return
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
