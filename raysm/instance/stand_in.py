"""Take the place of an agent of Ray until it is needed, then become it.

Each agent takes a second of a core to start.

It is run by its path (``python -I -S stand_in.py``), imports only the standard library and starts
in 15 ms. A raylet starts two agents, registers its node only when both have announced their ports,
and ends when one of them ends (``ray/_private/services.py`` has their command lines). So this
program announces the ports at once, and keeps its pid when it becomes the agent, at the first
connection. Its arguments, before the agent's command line:

    OPTION NAME,NAME,…   listen at the port of the agent's OPTION (a free one for 0), and announce
    it for the last NAME;
                         announce port -1, Ray's mark for a missing service, for the others

Connections wait in the queue of the socket, which the agent takes over (``handed_socket``). The
socket listens before its port is announced, because another user could listen at a port that is
only bound. Ray stores the port of the dashboard's agent when the node registers, so it must be the
real one even before the agent starts.
"""

import os
import select
import socket
import sys
from collections.abc import Sequence

OUT_OF_USE = -1
"""The port that Ray's agent announces for a service that it lacks."""
FOLDER = os.path.dirname(os.path.abspath(__file__))
HANDED_SOCKET = os.path.join(FOLDER, "handed_socket.py")
RAY_IMPORTS = os.path.join(FOLDER, "ray_imports.py")
LOOK_S = 1.0
"""Seconds between checks that the raylet runs; Ray's own agents check every 2 s."""
QUEUE = 128


def option(command: Sequence[str], name: str) -> str:
    """Return the value of ``--name=value`` on a command line.

    The last one counts, as it does for argparse.
    """
    return next(
        (word.partition("=")[2] for word in reversed(command) if word.startswith(f"{name}=")), ""
    )


def await_call(port_option: str, names: str, command: Sequence[str]) -> list[str]:
    """Listen, announce the ports, and return the agent's command line when a client connects."""
    # Read first: a parent that is killed as soon as a port is announced must be missed too.
    parent = os.getppid()
    listener = _listen(option(command, "--node-ip-address"), int(option(command, port_option) or 0))
    port = listener.getsockname()[1]
    *unused, called = names.split(",")
    _announce_port(command, called, port)
    for name in unused:
        _announce_port(command, name, OUT_OF_USE)
    _wait_for(listener, parent)
    listener.set_inheritable(True)
    python, unbuffered, program, *options = command
    # -P: Ray may have modules with the names of those beside this file. The last port on the
    # command line counts.
    handed = [python, unbuffered, "-P", HANDED_SOCKET, str(listener.detach())]
    return [*handed, RAY_IMPORTS, program, *options, f"{port_option}={port}"]


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(QUEUE)
    return listener


def _announce_port(command: Sequence[str], name: str, port: int) -> None:
    path = os.path.join(option(command, "--session-dir"), f"{name}_{option(command, '--node-id')}")
    with open(f"{path}.new", "w") as file:
        file.write(str(port))
    # A rename, because the raylet polls for the file and might read an incomplete number.
    os.rename(f"{path}.new", path)


def _wait_for(listener: socket.socket, parent: int) -> None:
    while not select.select([listener], [], [], LOOK_S)[0]:
        if os.getppid() != parent:
            sys.exit(0)


def main(arguments: Sequence[str]) -> None:
    port_option, names, *command = arguments
    try:
        ready = await_call(port_option, names, command)
    except OSError:
        # Start Ray's own agent at once, which reports a problem with a port or a folder in its own
        # log.
        ready = command
    os.execv(ready[0], ready)


if __name__ == "__main__":
    main(sys.argv[1:])
