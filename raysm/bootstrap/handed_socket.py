"""Hand a listening socket over to a program: ``python -P handed_socket.py FD PROGRAM …`` runs its server on the socket.

The program opens a socket of its own and binds it to its address; here that bind is replaced by the socket that was
handed over, with all callers that wait in its queue. systemd hands its sockets over by their numbers, and servers
support it (https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html); this is for programs that do
not. It is run by its path and imports the standard library alone.

The dashboard is started so. It costs 5 s of a core, and most short jobs end before anyone looks at it. ``ray start``
listens at its port from the beginning and starts it for the first caller. The socket is never closed in between: on a
machine with other users, one of them could take a port that is free for a moment, and would be sent the job's token.
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
        """A socket with another bind."""

        def bind(self, address: Any) -> None:
            """Take over the handed socket if the address is its own, else bind as usual."""
            if address[:2] != place or handed.fileno() < 0:
                super().bind(address)
                return
            os.dup2(handed.fileno(), self.fileno(), inheritable=False)
            handed.close()
            # Only this once: the program's other sockets are ordinary ones.
            socket.socket = OriginalSocket  # type: ignore[misc]

    socket.socket = Socket  # type: ignore[misc]


QUEUE = 128
"""Callers that can wait for the dashboard, as many as aiohttp lets wait."""


class DashboardPort:
    """A listening socket that a program started later takes over.

    Attributes:
        host: The address on which it listens.
        port: The port.
    """

    def __init__(self, host: str, port: int) -> None:
        """Listen at ``host``, exactly as the program will give it; raises OSError if the port is taken."""
        self._listener = socket.create_server((host, port), backlog=QUEUE)
        self.host = host
        self.port: int = self._listener.getsockname()[1]

    def await_caller(self) -> None:
        """Return once a connection waits to be accepted."""
        select.select([self._listener], [], [])

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command line of a Python program that takes over the socket it finds as its standard input."""
        python, program, *options = command
        # -P: the modules beside this file have names that Ray's may have too.
        return [python, "-P", str(Path(__file__)), str(STDIN), program, *options]

    @contextlib.contextmanager
    def as_stdin(self) -> Iterator[None]:
        """Make the socket the standard input of what is started in the body."""
        # Ray starts its processes without a way to hand them a descriptor; they inherit the standard ones alone.
        before = os.dup(STDIN)
        os.dup2(self._listener.fileno(), STDIN)
        try:
            yield
        finally:
            os.dup2(before, STDIN)
            os.close(before)

    def pass_test(self) -> None:
        """Let the next bind to this address in this process succeed: Ray tests by one whether the port is free."""
        hand_over(os.dup(self._listener.fileno()))

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()


def main(arguments: list[str]) -> None:
    """Hand the socket over and run the program."""
    descriptor, program = int(arguments[0]), arguments[1]
    if descriptor == STDIN:
        descriptor = os.dup(STDIN)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), STDIN)
    sys.argv[:] = arguments[1:]
    hand_over(descriptor)
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
