"""Take the place of an agent of Ray until it is needed, then become it; each agent costs a second of a core to start.

Run by path (``python -I -S stand_in.py``), so it imports the standard library alone and takes 15 ms. A raylet starts
two agents, waits until both have said where they listen, registers its node only then, and ends when one of them ends
(``ray/_private/services.py`` has their command lines). So this program announces at once where they will listen,
is the child that the raylet watches, and keeps its pid when it becomes the agent. Its arguments are one of these,
followed by the agent's command line:

    until-rung BELL NAME,NAME,…   the services of these names are out of use, as Ray says it by port -1, but for the
                                  last, which listens already; a byte from the FIFO BELL says that the agent is wanted
    until-called NAME             the service of this name listens already, and its first caller says so

Callers wait in the queue of the socket, which the agent takes over (``handed_socket``). It listens from the moment its
port is announced: a socket that is only bound keeps no other user from listening at its port.
"""

import os
import select
import socket
import sys
from collections.abc import Sequence

UNTIL_RUNG = "until-rung"
UNTIL_CALLED = "until-called"
OUT_OF_USE = -1
"""The port by which Ray's agent says that it lacks a service."""
CALLED_PORT = "--runtime-env-agent-port"
SHOWN_PORT = "--listen-port"
HANDED_SOCKET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "handed_socket.py")
LOOK_S = 1.0
"""Seconds between checks that the raylet lives; Ray's own agents check every 2 s."""
QUEUE = 128
"""Callers that wait for the agent, as aiohttp has it."""


def option(command: Sequence[str], name: str) -> str:
    """Return the value of ``--name=value`` on a command line; the last one counts, as it does for argparse."""
    return next((word.partition("=")[2] for word in reversed(command) if word.startswith(f"{name}=")), "")


def await_ring(bell: str, names: str, command: Sequence[str]) -> list[str]:
    """Announce which services are out of use and where the last one listens; return the agent's command line on a ring.

    Raises:
        OSError: A file cannot be written, the port is taken, or there is no bell.
    """
    # Without waiting for the other end: who rings holds it open, as long as the node lives. First, because without a
    # bell Ray's own agent begins, which says all ports itself.
    bell_file = os.open(bell, os.O_RDONLY | os.O_NONBLOCK)
    *unused, shown = names.split(",")
    # The node is known by this port for good: a program submitted to Ray's Jobs API says by it where its log is read,
    # and told "out of use" its log could not be followed, though the agent had come long before.
    listener = _listening(command, SHOWN_PORT)
    _say_port(command, shown, listener.getsockname()[1])
    for name in unused:
        _say_port(command, name, OUT_OF_USE)
    _wait_for(bell_file)
    return _taking_over(command, SHOWN_PORT, listener)


def await_call(name: str, command: Sequence[str]) -> list[str]:
    """Listen, announce the port, and return the command line of the agent when a client connects.

    Raises:
        OSError: The port is taken.
    """
    listener = _listening(command, CALLED_PORT)
    _say_port(command, name, listener.getsockname()[1])
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
    # -P: beside this file lie modules whose names Ray's own may have. The last port counts: the one that was said.
    handed = [python, unbuffered, "-P", HANDED_SOCKET, str(listener.detach())]
    return [*handed, program, *options, f"{port}={number}"]


def _say_port(command: Sequence[str], name: str, port: int) -> None:
    path = os.path.join(option(command, "--session-dir"), f"{name}_{option(command, '--node-id')}")
    with open(f"{path}.new", "w") as file:
        file.write(str(port))
    # The raylet looks for the file all the time, and would read half a number.
    os.rename(f"{path}.new", path)


def _wait_for(descriptor: int) -> None:
    """Return when there is something to read; end with the raylet, or with who holds the other end."""
    parent = os.getppid()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while not (events := poll.poll(LOOK_S * 1000)):
        if os.getppid() != parent:
            sys.exit(0)
    if not events[0][1] & select.POLLIN:
        sys.exit(0)


def main(arguments: Sequence[str]) -> None:
    """Wait, and become the agent."""
    way, *rest = arguments
    count = 2 if way == UNTIL_RUNG else 1
    command = rest[count:]
    try:
        ready = await_ring(rest[0], rest[1], command) if way == UNTIL_RUNG else await_call(rest[0], command)
    except OSError:
        # Ray's own agent, at once: what is wrong with a port or a folder it says itself, where its users look for it.
        ready = command
    os.execv(ready[0], ready)


if __name__ == "__main__":
    main(sys.argv[1:])
