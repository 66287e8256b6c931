"""Hand a listening socket over to a program, which runs its server on it.

Usage: ``python -P handed_socket.py FD PROGRAM …``.

The program opens a socket of its own and binds it to its address. This module replaces that bind,
so that the program's socket becomes the one that was handed over, with all connections in its
queue. Servers that support systemd's socket activation
(https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html) do not need this. It is
run by its path and imports only the standard library.

Ray's dashboard is started in this way. It takes 5 s of a core, and most short jobs end before a
user opens it. So ``ray start`` listens at its port from the beginning, and starts it for the first
connection. The socket is never closed in between, because another user of the machine could listen
at a free port, and would receive the job's token.
"""

import contextlib
import os
import runpy
import select
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

OriginalSocket = socket.socket
STDIN = 0


def hand_over(descriptor: int) -> None:
    """Let the next socket that is bound to the address of ``descriptor`` become that socket."""
    handed = OriginalSocket(fileno=descriptor)
    place = handed.getsockname()[:2]

    class Socket(OriginalSocket):
        def bind(self, address: Any) -> None:
            if address[:2] != place or handed.fileno() < 0:
                super().bind(address)
                return
            os.dup2(handed.fileno(), self.fileno(), inheritable=False)
            handed.close()
            # Only once: all later sockets of the program are ordinary ones.
            socket.socket = OriginalSocket  # type: ignore[misc]

    socket.socket = Socket  # type: ignore[misc]


QUEUE = 128


class DashboardPort:
    """A listening socket that a program started later takes over."""

    def __init__(self, host: str, port: int) -> None:
        """``host`` must be spelled exactly as the program spells it."""
        self._listener = socket.create_server((host, port), backlog=QUEUE)
        self.host = host
        self.port: int = self._listener.getsockname()[1]

    def await_caller(self) -> None:
        select.select([self._listener], [], [])

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command line of a Python program that takes over its standard input."""
        python, program, *options = command
        # -P: Ray may have modules with the names of those beside this file.
        return [python, "-P", str(Path(__file__)), str(STDIN), program, *options]

    @contextlib.contextmanager
    def as_stdin(self) -> Iterator[None]:
        """Make the socket the standard input of processes that the body starts."""
        # Ray's processes inherit only the standard descriptors.
        before = os.dup(STDIN)
        os.dup2(self._listener.fileno(), STDIN)
        try:
            yield
        finally:
            os.dup2(before, STDIN)
            os.close(before)

    def pass_test(self) -> None:
        """Let the next bind to this address in this process succeed.

        Ray tests by a bind whether the port is free.
        """
        hand_over(os.dup(self._listener.fileno()))

    def close(self) -> None:
        self._listener.close()


def main(arguments: list[str]) -> None:
    descriptor = int(arguments[0])
    program = arguments[1]
    if descriptor == STDIN:
        descriptor = os.dup(STDIN)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), STDIN)
    sys.argv[:] = arguments[1:]
    hand_over(descriptor)
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
