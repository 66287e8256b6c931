"""The dashboard's port: this process listens there for as long as the node lives, and the dashboard shares the socket.

The dashboard costs 5 s of a core and most short jobs end before anyone looks at it, so it is started for its first
caller. Until then callers wait in the queue of the listening socket, which the dashboard gets as its standard input
(``handed_socket``). The socket is never closed in between: on a machine with other users, one of them could take a port
that is free for a moment, and would be sent the job's token.
"""

import contextlib
import os
import select
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from raysm.bootstrap import handed_socket

QUEUE = 128
"""Callers that can wait for the dashboard, as many as aiohttp lets wait."""
STDIN = 0


class DashboardPort:
    """A listening socket that a program started later takes over.

    Attributes:
        host: The address on which it listens.
        port: The port.
    """

    def __init__(self, host: str, port: int) -> None:
        """Listen.

        Args:
            host: The address to listen on, exactly as the program will give it; ``0.0.0.0`` for every one.
            port: The port.

        Raises:
            OSError: The port is taken.
        """
        self._listener = socket.create_server((host, port), backlog=QUEUE)
        self.host = host
        self.port: int = self._listener.getsockname()[1]

    def await_caller(self) -> None:
        """Return once a connection waits to be accepted."""
        select.select([self._listener], [], [])

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command line of a Python program that takes over the socket it finds as its standard input."""
        python, program, *options = command
        # -P: the modules beside handed_socket.py have names that Ray's may have too.
        return [python, "-P", str(Path(handed_socket.__file__)), str(STDIN), program, *options]

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
        handed_socket.hand_over(os.dup(self._listener.fileno()))

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()
