"""The session documents that AWS publishes: what flows in are a request's parameters, what flows out is what to run.

https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-schema.html; a further document is a line
in ``DOCUMENTS``.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from raysm.local.server.api_error import ApiError, validation
from raysm.local.server.ssm.command import Command
from raysm.local.server.ssm.plugin import Ends, Plugin
from raysm.local.server.ssm.port import MuxPort, PlainPort

__all__ = ["DOCUMENTS", "SHELL", "Work", "work_of"]

Parameters: TypeAlias = Mapping[str, list[str]]

SHELL = "SSM-SessionManagerRunShell"
"""The document of a session that names none."""
# Above 3.1.1511.0, from which on an agent leaves keep-alive to the service, and above 3.0.196.0, which multiplexes.
MULTIPLEXES = "3.3.1611.0"
PLAIN = "3.0.161.0"
"""Versions of agents that do, and that do not yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What an agent is to do."""

    session_type: str
    """As its handshake names it."""
    properties: Mapping[str, Any]
    """As its handshake tells them."""
    begin: Callable[[Ends], Plugin]
    """Makes what does it."""


def work_of(document: str, parameters: Parameters) -> Work:
    """Return what a session is for.

    Raises:
        ApiError: There is no such document, or it takes other parameters.
    """
    # By the table: a document of the account's own, which AWS also has, is none here.
    if document not in DOCUMENTS:
        raise ApiError("InvalidDocument", f"Document with name {document} does not exist.")
    return DOCUMENTS[document](parameters)


def _port(parameters: Parameters) -> Work:
    port = _one(parameters, "portNumber", "80")
    # isdecimal, since int() also takes a sign, blanks and 1_000; the document's own pattern does not.
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise validation(f"Parameter portNumber does not match the allowed pattern: {port!r}")
    properties = {
        "portNumber": port,
        "localPortNumber": _one(parameters, "localPortNumber", "0"),
        "type": "LocalPortForwarding",
    }
    return Work(
        session_type="Port",
        properties=properties,
        begin=lambda ends: (MuxPort if ends.multiplexes else PlainPort)(ends, int(port)),
    )


def _shell(parameters: Parameters) -> Work:
    # What the agent runs where nobody says what; it has a terminal.
    return _command("Standard_Stream", ["sh"])


def _interactive(parameters: Parameters) -> Work:
    return _command("InteractiveCommands", _words(parameters))


def _non_interactive(parameters: Parameters) -> Work:
    return _command("NonInteractiveCommands", _words(parameters), has_terminal=False)


def _command(session_type: str, words: list[str], *, has_terminal: bool = True) -> Work:
    # As root: within SageMaker's containers there is nobody else.
    properties = {"linux": {"commands": shlex.join(words), "runAsElevated": True}}
    return Work(
        session_type=session_type,
        properties=properties,
        begin=lambda ends: Command(ends, words, has_terminal=has_terminal),
    )


def _words(parameters: Parameters) -> list[str]:
    """Return the words of the command: in a container the agent does not ask a shell to read them."""
    try:
        words = shlex.split(_one(parameters, "command", ""))
    except ValueError as error:
        raise validation(f"Parameter command cannot be read: {error}") from None
    if not words:
        raise validation("Parameter command is required")
    return words


DOCUMENTS: Mapping[str, Callable[[Parameters], Work]] = {
    "AWS-StartPortForwardingSession": _port,
    SHELL: _shell,
    "AWS-StartInteractiveCommand": _interactive,
    "AWS-StartNonInteractiveCommand": _non_interactive,
}


def _one(parameters: Parameters, name: str, default: str) -> str:
    values = parameters.get(name) or [default]
    if not isinstance(values, list) or len(values) != 1 or not isinstance(values[0], str):
        raise validation(f"Parameter {name} takes one string, in a list")
    return values[0]
