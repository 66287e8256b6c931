"""What both ends tell each other before the first byte of a session: JSON in stream messages.

The agent asks (which kind of session, which version it is), the client answers, the agent says that it is complete.
Only then may data flow: an agent passes over what comes before, though it acknowledges it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Agreement", "answer", "complete", "request", "version_of"]

# ActionStatus, as the agent's and the plugin's sources number it (agent/session/contracts).
SUCCESS, FAILED, UNSUPPORTED = 1, 2, 3
CLIENT_VERSION = "1.2.650.0"
"""Which of the official client's versions ours can do: an agent multiplexes from 1.1.70 on, and leaves out smux's own
keep-alive, which would reset the idle timer, above 1.2.331."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """What an agent asked for."""

    agent_version: str
    """``3.3.40.0``; empty where it was not told."""
    session_type: str = ""
    """``Port``, ``Standard_Stream``, ``InteractiveCommands`` …"""
    properties: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of the session's document."""
    refused: str = ""
    """What the agent wants, and cannot be had here; empty if nothing."""

    @property
    def heartbeat_s(self) -> float:
        """Seconds between signs of life: older agents end a mux that is silent for 30, newer ones leave that to SSM."""
        # A third of what older agents wait; newer ones only have to outlive middle boxes, which forget within minutes.
        return 300.0 if version_of(self.agent_version) > (3, 1, 1511, 0) else 10.0

    @property
    def multiplexes(self) -> bool:
        """Whether a session carries many connections: those to a local port, above 3.0.196.0."""
        is_local = self.properties.get("type") == "LocalPortForwarding"
        return is_local and version_of(self.agent_version) > (3, 0, 196, 0)


def version_of(text: str) -> tuple[int, ...]:
    """Return a version as numbers; those of what is none are none, which is less than all others."""
    parts = text.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def request(agent_version: str, session_type: str, properties: Mapping[str, Any]) -> bytes:
    """Return what an agent asks."""
    action = {
        "ActionType": "SessionType",
        "ActionParameters": {"SessionType": session_type, "Properties": properties},
    }
    return json.dumps({"AgentVersion": agent_version, "RequestedClientActions": [action]}).encode()


def answer(handshake_request: Mapping[str, Any]) -> tuple[Agreement, bytes]:
    """Return what an agent wants, and the client's response."""
    parameters: dict[str, Any] = {}
    refused, processed = "", []
    # Each is answered, also those that cannot be done: the agent waits for all of them.
    for action in handshake_request.get("RequestedClientActions") or ():
        kind, status, problem = action.get("ActionType"), SUCCESS, ""
        if kind == "SessionType":
            parameters = action.get("ActionParameters") or {}
        else:
            status, problem = UNSUPPORTED, f"Unsupported action {kind}"
            refused = str(kind)
        processed.append({"ActionType": kind, "ActionStatus": status, "ActionResult": None, "Error": problem})
    # Go's nil slice is null in JSON: so the official client sends it where there are none.
    errors = [item["Error"] for item in processed if item["Error"]] or None
    response = {"ClientVersion": CLIENT_VERSION, "ProcessedClientActions": processed, "Errors": errors}
    agreement = Agreement(
        agent_version=str(handshake_request.get("AgentVersion") or ""),
        session_type=str(parameters.get("SessionType") or ""),
        properties=parameters.get("Properties") or {},
        refused=refused,
    )
    return agreement, json.dumps(response).encode()


def complete(seconds: float, message: str = "") -> bytes:
    """Return what an agent says when both agree; Go counts times in nanoseconds."""
    return json.dumps({"HandshakeTimeToComplete": int(seconds * 1e9), "CustomerMessage": message}).encode()
