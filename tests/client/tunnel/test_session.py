"""The operations on sessions, at a service that answers as a script says."""

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from raysm.client.service import Service
from raysm.client.tunnel.session import Document, Pass, Sessions, port_document, target_of
from raysm.errors import ServiceError
from tests.support.sagemaker import aws, refusal

ENTRY = {"SessionId": "s-1", "StreamUrl": "wss://there", "TokenValue": "secret"}
TARGET = target_of("job", "algo-1")


class Ssm:
    """Answers with what it was given, one after the other, and raises what is an error."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def start_session(self, **request):
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    resume_session = terminate_session = start_session

    def describe_log_streams(self, **request):
        return {"logStreams": []}


def sessions(*answers, **options):
    ssm = Ssm(*answers)
    return Sessions(Service(aws(), clients=lambda name: ssm), **options), ssm


def test_a_session_is_begun_for_a_port_of_an_instance():
    here, ssm = sessions(ENTRY)
    entry = asyncio.run(here.start(TARGET, port_document(8265)))
    assert entry == Pass(session="s-1", url="wss://there", token="secret")
    assert ssm.asked == [
        {
            "Target": "sagemaker-training-job:job_algo-1",
            "DocumentName": "AWS-StartPortForwardingSession",
            "Parameters": {"portNumber": ["8265"]},
            "Reason": "raysm",
        }
    ]


def test_the_token_is_in_no_repr():
    assert "secret" not in repr(Pass(session="s-1", url="wss://there", token="secret"))


def test_an_agent_that_is_not_connected_yet_is_waited_for():
    here, ssm = sessions(refusal("TargetNotConnected", "x is not connected."), ENTRY)
    assert asyncio.run(here.start(TARGET, Document(name="d", parameters={}))).session == "s-1"
    assert len(ssm.asked) == 2


def test_one_that_never_comes_is_told_of_with_the_remedy():
    here, _ = sessions(refusal("TargetNotConnected", "x is not connected."), connect_s=0.0)
    with pytest.raises(ServiceError, match="x is not connected.*four permissions of ssmmessages.*JOB/ALGO-N-TIME/ssm"):
        asyncio.run(here.start(TARGET, port_document(1)))


def test_another_refusal_is_not_tried_again():
    here, ssm = sessions(refusal("AccessDeniedException", "no"))
    with pytest.raises(ServiceError, match="no"):
        asyncio.run(here.start(TARGET, port_document(1)))
    assert len(ssm.asked) == 1


@pytest.mark.parametrize("answer", [refusal("DoesNotExistException", "gone"), {"SessionId": "s-1"}])
def test_a_session_that_is_over_cannot_be_resumed(answer):
    here, _ = sessions(answer)
    assert asyncio.run(here.resume("s-1")) is None


def test_a_session_is_resumed_and_ended():
    here, ssm = sessions(ENTRY, {})
    assert asyncio.run(here.resume("s-1")).token == "secret"
    asyncio.run(here.terminate("s-1"))
    assert ssm.asked == [{"SessionId": "s-1"}] * 2


def test_what_a_session_is_begun_with_can_be_told_to_others():
    here, ssm = sessions(ENTRY)
    asyncio.run(here.start(TARGET, port_document(8265)))
    assert ssm.asked == [here.request(TARGET, port_document(8265))]


def test_one_that_is_left_to_the_end_of_the_process_is_ended_there_and_nobody_reads_a_traceback():
    # In a process of its own: what is tried is that process's end.
    code = """
        import asyncio, atexit
        from tests.client.tunnel.test_session import sessions

        here, ssm = sessions({})

        def end():
            asyncio.run(here.terminate("s-1"))
            print(ssm.asked)

        atexit.register(end)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("[{'SessionId': 's-1'}]\n", "")
