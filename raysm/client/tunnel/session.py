"""Sessions of Systems Manager by its API: what flows in is a target and a document, what flows out is the way in."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from raysm.client.service import Service
from raysm.client.tunnel.agent_log import last_complaint
from raysm.errors import ServiceError

__all__ = ["COMMAND", "PORT", "Document", "Pass", "Sessions", "target_of"]

TARGET = "sagemaker-training-job:"
CONNECT_S = 60.0
"""An agent that was switched on just now takes some time until it is connected."""
PAUSE_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """What a session is for."""

    name: str
    """Of a document that AWS publishes."""
    parameters: Mapping[str, list[str]]
    """As the document takes them."""


def port_document(port: int) -> Document:
    """Return the document of a session that forwards connections to ``port``."""
    return Document(name=PORT, parameters={"portNumber": [str(port)]})


PORT = "AWS-StartPortForwardingSession"
COMMAND = "AWS-StartInteractiveCommand"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """What lets one connection into a data channel."""

    session: str
    """The session's id."""
    url: str
    """Where the data channel is."""
    # Whoever has it has the session: it is in no repr, and so in no message and no log.
    token: str = field(repr=False)
    """Presented as the first message."""


def target_of(job: str, host: str) -> str:
    """Return the target that is an instance of a training job.

    https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html
    """
    return f"{TARGET}{job}_{host}"


class Sessions:
    """The three operations, for asyncio.

    Attributes:
        service: Where they are asked for.
    """

    def __init__(self, service: Service, *, connect_s: float = CONNECT_S) -> None:
        """Ask ``service``; an agent that is not connected yet is waited for so long."""
        self.service = service
        self._connect_s = connect_s

    async def start(self, target: str, document: Document) -> Pass:
        """Begin a session.

        Raises:
            ServiceError: It is refused, or no agent is connected there.
        """
        # Tried again only while the agent is not connected: every other refusal will be the same in a second.
        deadline_s = time.monotonic() + self._connect_s
        while True:
            try:
                return _pass(await self._call("start_session", **self.request(target, document)))
            except ServiceError as error:
                if error.code != "TargetNotConnected":
                    raise
                if time.monotonic() > deadline_s:
                    raise ServiceError(f"{error}; {await self._why_not(target)}", code=error.code) from error
            await asyncio.sleep(PAUSE_S)

    def request(self, target: str, document: Document) -> dict[str, Any]:
        """Return what a session is begun with, as the API has it."""
        return {
            "Target": target,
            "DocumentName": document.name,
            "Parameters": dict(document.parameters),
            # Stands in the account's session history, where somebody may ask who came in.
            "Reason": "raysm",
        }

    async def _why_not(self, target: str) -> str:
        """Return why an agent is not connected: what it says itself, where it can be read."""
        job, _, host = target.removeprefix(TARGET).rpartition("_")
        complaint = await asyncio.to_thread(last_complaint, self.service, job, host)
        return f"{NOT_CONNECTED}; the agent's last words: {complaint}" if complaint else NOT_CONNECTED

    async def resume(self, session: str) -> Pass | None:
        """Return what lets a further connection into a session; None where the session has ended.

        Raises:
            ServiceError: It is refused, or the service is away.
        """
        try:
            answer = await self._call("resume_session", SessionId=session)
        except ServiceError as error:
            if error.code == "DoesNotExistException":
                return None
            raise
        # The official client takes an answer without a token for the end of the session.
        return _pass(answer) if answer.get("TokenValue") else None

    async def terminate(self, session: str) -> None:
        """End a session.

        Raises:
            ServiceError: It is refused, or the service is away.
        """
        try:
            await self._call("terminate_session", SessionId=session)
        # Whoever leaves a tunnel to the end of his process closes it when Python gives no thread to anybody any more;
        # the session is to be ended all the same, and by then nothing else waits for this loop.
        except RuntimeError:
            self.service.call("ssm", "terminate_session", SessionId=session)

    async def _call(self, operation: str, **parameters: Any) -> Mapping[str, Any]:
        # boto3 blocks: the loop also carries the connections of the tunnel.
        answer: Mapping[str, Any] = await asyncio.to_thread(partial(self.service.call, "ssm", operation, **parameters))
        return answer


NOT_CONNECTED = (
    "the agent of the instance has not come up: the job's role needs the four permissions of ssmmessages (raysm doctor "
    "--policy role), and the agent complains in the log stream JOB/ALGO-N-TIME/ssm"
)


def _pass(answer: Mapping[str, Any]) -> Pass:
    return Pass(session=answer["SessionId"], url=answer["StreamUrl"], token=answer["TokenValue"])
