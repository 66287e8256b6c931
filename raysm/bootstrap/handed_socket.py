"""Run a program whose server takes over a listening socket: ``python -P handed_socket.py FD PROGRAM …``.

The program opens a socket of its own and binds it to its address; here that bind is replaced by the socket that was
handed over, with all callers that wait in its queue. systemd hands its sockets over by their numbers, and servers
support it (https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html); this is for programs that do
not. It is run by its path and imports the standard library alone.
"""

import os
import runpy
import socket
import sys
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
