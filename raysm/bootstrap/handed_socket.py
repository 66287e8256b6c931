"""Run a program whose server takes over a socket that listens already: ``python -P handed_socket.py FD PROGRAM …``.

The agent opens a socket of its own and binds it to the port that it was told; here that very bind takes the handed one
in its place, with all callers that wait in its queue. systemd hands its sockets over by their numbers, and servers know
of it (https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html); this is for one that does not. Run
by path and without raysm: what flows in is an open descriptor, what flows out is the program with its arguments.
"""

import os
import runpy
import socket
import sys
from typing import Any

__all__ = ["hand_over", "main"]

OriginalSocket = socket.socket


def hand_over(descriptor: int) -> None:
    """Let the next socket that is bound to the address of ``descriptor`` be that one."""
    handed = OriginalSocket(fileno=descriptor)

    class Socket(OriginalSocket):
        """A socket as ever, but for its bind."""

        def bind(self, address: Any) -> None:
            """Take over what listens there already, or bind."""
            if address[:2] != handed.getsockname()[:2]:
                super().bind(address)
                return
            os.dup2(handed.detach(), self.fileno(), inheritable=False)
            os.close(descriptor)
            # Only that one: whatever else the program opens is none of ours.
            socket.socket = OriginalSocket  # type: ignore[misc]

    socket.socket = Socket  # type: ignore[misc]


def main(arguments: list[str]) -> None:
    """Hand over, and be the program."""
    descriptor, program = int(arguments[0]), arguments[1]
    sys.argv[:] = arguments[1:]
    hand_over(descriptor)
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
