"""Stands in for an agent of Ray's until somebody wants it, and then becomes it: what costs a second of a core waits.

Run by path (``python -I -S stand_in.py``), so it imports the standard library alone and takes 15 ms. A raylet starts
two agents, waits until both have said where they listen, registers its node only then, and ends when one of them ends
(``ray/_private/services.py`` has their command lines). So this says at once where they will be, is the child that the
raylet watches, and keeps its pid when it becomes the agent. What flows in is the agent's own command line behind:

    until-rung BELL NAME,NAME,…   the services of these names are out of use, as Ray says it by port -1; a byte from the
                                  FIFO BELL says that the agent is wanted
    until-called NAME             the service of this name listens already, and its first caller says so; the caller
                                  waits in the queue of the socket, which the agent takes over (``handed_socket``)
"""

import os
import select
import socket
import sys
from collections.abc import Sequence

__all__ = ["UNTIL_CALLED", "UNTIL_RUNG", "await_call", "await_ring", "main", "option"]

UNTIL_RUNG = "until-rung"
UNTIL_CALLED = "until-called"
OUT_OF_USE = -1
"""What Ray's own agent says of a service that it does not have."""
PORT = "--runtime-env-agent-port"
HANDED_SOCKET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "handed_socket.py")
LOOK_S = 1.0
"""How often to see whether the raylet lives; Ray's own agents look every 2 s."""
QUEUE = 128
"""Callers that wait for the agent, as aiohttp has it."""


def option(command: Sequence[str], name: str) -> str:
    """Return the value of ``--name=value`` on a command line; the last one counts, as it does for argparse."""
    return next((word.partition("=")[2] for word in reversed(command) if word.startswith(f"{name}=")), "")


def await_ring(bell: str, names: str, command: Sequence[str]) -> list[str]:
    """Say that the services are out of use, and return the agent's command line once the bell rings.

    Raises:
        OSError: A file cannot be written, or there is no bell.
    """
    for name in names.split(","):
        _say_port(command, name, OUT_OF_USE)
    # Without waiting for the other end: who rings holds it open, as long as the node lives.
    _wait_for(os.open(bell, os.O_RDONLY | os.O_NONBLOCK))
    return [*command]


def await_call(name: str, command: Sequence[str]) -> list[str]:
    """Listen, say where, and return the command line of an agent that takes over, once somebody calls.

    Raises:
        OSError: The port is taken.
    """
    host, port = option(command, "--node-ip-address"), int(option(command, PORT) or 0)
    family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, number)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(QUEUE)
    port = listener.getsockname()[1]
    _say_port(command, name, port)
    _wait_for(listener.fileno())
    listener.set_inheritable(True)
    python, unbuffered, program, *options = command
    # -P: beside this file lie modules whose names Ray's own may have. The last port counts: the one that was said.
    handed = [python, unbuffered, "-P", HANDED_SOCKET, str(listener.detach())]
    return [*handed, program, *options, f"{PORT}={port}"]


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
    own = 2 if way == UNTIL_RUNG else 1
    command = rest[own:]
    try:
        ready = await_ring(rest[0], rest[1], command) if way == UNTIL_RUNG else await_call(rest[0], command)
    except OSError:
        # Ray's own agent, at once: what is wrong with a port or a folder it says itself, where its users look for it.
        ready = command
    os.execv(ready[0], ready)


if __name__ == "__main__":
    main(sys.argv[1:])
