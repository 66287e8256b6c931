"""Systems Manager's operations on sessions: what flows in is a request, what flows out is its answer.

Which refusals a target gets is from public reports of them (github.com/aws/session-manager-plugin/issues/72): whatever
the reason, it "is not connected". That the training must be under way, and the debugging switched on, is from
https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from raysm.contract.job_api import TRAINING
from raysm.local.instances import Instance
from raysm.local.server.api_error import ApiError, validation
from raysm.local.server.records import Records
from raysm.local.server.ssm.documents import SHELL, work_of
from raysm.local.server.ssm.gateway import PATH, Gateway

__all__ = ["TARGET", "SsmOperations"]

TARGET = "AmazonSSM."
"""How the targets of requests to Systems Manager begin."""
INSTANCE = re.compile(r"sagemaker-training-job:([a-zA-Z0-9-]{1,63})_(algo-[1-9]\d*)")
"""An instance of a training job, as a session's target."""

Operation = Callable[[Mapping[str, Any], str, str], Mapping[str, Any]]


class SsmOperations:
    """StartSession, ResumeSession, TerminateSession.

    Attributes:
        gateway: Carries the sessions.
    """

    def __init__(
        self, gateway: Gateway, records: Records, instances: Callable[[str, str], Mapping[str, Instance]]
    ) -> None:
        """Begin sessions by ``gateway``; ``instances`` returns those of a job of a region that run, by host."""
        self.gateway = gateway
        self._records = records
        self._instances = instances
        self._operations: Mapping[str, Operation] = {
            "StartSession": self._start,
            "ResumeSession": self._resume,
            "TerminateSession": self._terminate,
        }

    def has(self, operation: str) -> bool:
        """Whether ``operation`` is ours."""
        return operation in self._operations

    def answer(self, operation: str, request: Mapping[str, Any], region: str, host: str) -> Mapping[str, Any]:
        """Carry ``operation`` out in a region; ``host`` is what the client calls this server, with its port.

        Raises:
            ApiError: It is refused.
        """
        return self._operations[operation](request, region, host)

    def _start(self, request: Mapping[str, Any], region: str, host: str) -> Mapping[str, Any]:
        target = _text(request, "Target")
        # Before the target: a document that does not exist is said also where nobody is connected.
        work = work_of(str(request.get("DocumentName") or SHELL), request.get("Parameters") or {})
        session, token = self.gateway.start(self._instance(target, region), work)
        return _answer(session, token, host)

    def _instance(self, target: str, region: str) -> Instance:
        """Return the instance that is meant.

        Raises:
            ApiError: There is none, or nobody is let in.
        """
        named = INSTANCE.fullmatch(target)
        # One answer to whatever is wrong: AWS does not tell strangers which jobs there are.
        is_open = named is not None and self._is_open(named[1], region)
        instance = self._instances(named[1], region).get(named[2]) if named and is_open else None
        if instance is None or instance.exited.done():
            raise ApiError("TargetNotConnected", f"{target} is not connected.")
        return instance

    def _is_open(self, job: str, region: str) -> bool:
        try:
            record = self._records.get(TRAINING, job, region)
        except ApiError:
            return False
        debugging = record.request.get("RemoteDebugConfig") or {}
        # The record's request is changed by UpdateTrainingJob, so that it can be switched on while the job runs.
        return self.gateway.is_permitted and record.secondary == "Training" and bool(debugging.get("EnableRemoteDebug"))

    def _resume(self, request: Mapping[str, Any], region: str, host: str) -> Mapping[str, Any]:
        session = _text(request, "SessionId")
        token = self.gateway.resume(session)
        # As AWS: an id that ended is not told apart from one that never was.
        if token is None:
            raise ApiError("DoesNotExistException", f"Session {session} does not exist.")
        return _answer(session, token, host)

    def _terminate(self, request: Mapping[str, Any], region: str, host: str) -> Mapping[str, Any]:
        session = _text(request, "SessionId")
        self.gateway.terminate(session)
        return {"SessionId": session}


def _answer(session: str, token: str, host: str) -> Mapping[str, Any]:
    return {
        "SessionId": session,
        "TokenValue": token,
        # ws, where AWS has wss: on loopback there is no certificate to be had.
        "StreamUrl": f"ws://{host}{PATH}{session}?role=publish_subscribe",
    }


def _text(request: Mapping[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not value:
        member = name[0].lower() + name[1:]
        raise validation(
            f"1 validation error detected: Value null at '{member}' failed to satisfy constraint: Member must not be "
            "null"
        )
    return value
