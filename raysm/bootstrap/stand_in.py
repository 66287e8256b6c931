"""Take the place of an agent of Ray until it is needed, then become it; each agent takes a second of a core to start.

It is run by its path (``python -I -S stand_in.py``), imports only the standard library and starts in 15 ms. A raylet
starts two agents, registers its node only when both have announced their ports, and ends when one of them ends
(``ray/_private/services.py`` has their command lines). So this program announces the ports at once, and keeps its pid
when it becomes the agent. Its arguments are one of these, followed by the agent's command line:

    until-rung BELL NAME,NAME,…   announce port -1, Ray's mark for a missing service, for all names but the last; listen
                                  for the last one; become the agent after a byte from the FIFO BELL
    until-called NAME             listen for the service of this name; become the agent at the first connection

Connections wait in the queue of the socket, which the agent takes over (``handed_socket``). The socket listens before
its port is announced, because another user could listen at a port that is only bound.
"""

import os
import select
import socket
import sys
from collections.abc import Sequence

UNTIL_RUNG = "until-rung"
UNTIL_CALLED = "until-called"
OUT_OF_USE = -1
"""The port that Ray's agent announces for a service that it lacks."""
CALLED_PORT = "--runtime-env-agent-port"
SHOWN_PORT = "--listen-port"
HANDED_SOCKET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "handed_socket.py")
LOOK_S = 1.0
"""Seconds between checks that the raylet runs; Ray's own agents check every 2 s."""
QUEUE = 128
"""Number of connections that can wait for the agent, as in aiohttp."""


def option(command: Sequence[str], name: str) -> str:
    """Return the value of ``--name=value`` on a command line; the last one counts, as it does for argparse."""
    return next((word.partition("=")[2] for word in reversed(command) if word.startswith(f"{name}=")), "")


def await_ring(bell: str, names: str, command: Sequence[str]) -> list[str]:
    """Announce the ports of all services; after a ring of the bell, return the agent's command line.

    Raises:
        OSError: A file cannot be written, the port is taken, or there is no bell.
    """
    # The bell is opened before any port is announced, because without it Ray's own agent starts and announces its
    # ports. O_NONBLOCK does not wait for the writer, which is the process that starts the node.
    bell_file = os.open(bell, os.O_RDONLY | os.O_NONBLOCK)
    *unused, shown = names.split(",")
    # Ray stores this port when the node registers, and later reads the logs of programs of its Jobs API there. So it
    # must be the real port, even before the agent starts.
    listener = _listening(command, SHOWN_PORT)
    _announce_port(command, shown, listener.getsockname()[1])
    for name in unused:
        _announce_port(command, name, OUT_OF_USE)
    _wait_for(bell_file)
    return _taking_over(command, SHOWN_PORT, listener)


def await_call(name: str, command: Sequence[str]) -> list[str]:
    """Listen, announce the port, and return the command line of the agent when a client connects.

    Raises:
        OSError: The port is taken.
    """
    listener = _listening(command, CALLED_PORT)
    _announce_port(command, name, listener.getsockname()[1])
    _wait_for(listener.fileno())
    return _taking_over(command, CALLED_PORT, listener)


def _listening(command: Sequence[str], port: str) -> socket.socket:
    """Return a socket that listens at the node's address, at the port of the command line, or at a free one for 0."""
    host, number = option(command, "--node-ip-address"), int(option(command, port) or 0)
    family, kind, protocol, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(QUEUE)
    return listener


def _taking_over(command: Sequence[str], port: str, listener: socket.socket) -> list[str]:
    """Return the command line of the agent that takes over a socket of this process."""
    number = listener.getsockname()[1]
    listener.set_inheritable(True)
    python, unbuffered, program, *options = command
    # -P: Ray may have modules with the names of those beside this file. The last port on the command line counts.
    handed = [python, unbuffered, "-P", HANDED_SOCKET, str(listener.detach())]
    return [*handed, program, *options, f"{port}={number}"]


def _announce_port(command: Sequence[str], name: str, port: int) -> None:
    path = os.path.join(option(command, "--session-dir"), f"{name}_{option(command, '--node-id')}")
    with open(f"{path}.new", "w") as file:
        file.write(str(port))
    # A rename, because the raylet polls for the file and might read an incomplete number.
    os.rename(f"{path}.new", path)


def _wait_for(descriptor: int) -> None:
    """Return when the descriptor is readable; exit when the raylet ends or the other end is closed."""
    parent = os.getppid()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while not (events := poll.poll(LOOK_S * 1000)):
        if os.getppid() != parent:
            sys.exit(0)
    if not events[0][1] & select.POLLIN:
        sys.exit(0)


def main(arguments: Sequence[str]) -> None:
    """Wait, then become the agent."""
    way, *rest = arguments
    count = 2 if way == UNTIL_RUNG else 1
    command = rest[count:]
    try:
        ready = await_ring(rest[0], rest[1], command) if way == UNTIL_RUNG else await_call(rest[0], command)
    except OSError:
        # Start Ray's own agent at once, which reports a problem with a port or a folder in its own log.
        ready = command
    os.execv(ready[0], ready)


if __name__ == "__main__":
    main(sys.argv[1:])
