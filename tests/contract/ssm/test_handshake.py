"""What both ends tell each other first."""

import json

import pytest

from raysm.contract.ssm import handshake
from raysm.contract.ssm.handshake import Agreement, version_of

LOCAL = {"portNumber": "8265", "type": "LocalPortForwarding"}


def test_the_agent_asks_and_the_client_answers():
    asked = json.loads(handshake.request("3.3.40.0", "Port", LOCAL))
    agreement, response = handshake.answer(asked)
    assert (agreement.session_type, agreement.properties, agreement.refused) == ("Port", LOCAL, "")
    answered = json.loads(response)
    assert answered["ProcessedClientActions"] == [
        {"ActionType": "SessionType", "ActionStatus": 1, "ActionResult": None, "Error": ""}
    ]
    assert version_of(answered["ClientVersion"]) > (1, 2, 331, 0)  # else the agent keeps the mux alive by itself


def test_encryption_is_refused_and_said():
    asked = {"RequestedClientActions": [{"ActionType": "KMSEncryption", "ActionParameters": {"KMSKeyId": "k"}}]}
    agreement, response = handshake.answer(asked)
    assert agreement.refused == "KMSEncryption"
    assert json.loads(response)["ProcessedClientActions"][0]["ActionStatus"] == 3
    assert json.loads(response)["Errors"] == ["Unsupported action KMSEncryption"]


def test_an_agent_that_asks_nothing_is_answered_too():
    assert handshake.answer({})[0] == Agreement(agent_version="")


@pytest.mark.parametrize(
    ("version", "multiplexes", "heartbeat_s"),
    [("3.3.40.0", True, 300), ("3.1.1511.0", True, 10), ("3.0.196.0", False, 10), ("", False, 10), ("x.1", False, 10)],
)
def test_what_an_agent_can_follows_from_its_version(version, multiplexes, heartbeat_s):
    agreement = Agreement(agent_version=version, session_type="Port", properties=LOCAL)
    assert (agreement.multiplexes, agreement.heartbeat_s) == (multiplexes, heartbeat_s)


def test_a_session_that_leads_to_no_local_port_is_not_multiplexed():
    assert not Agreement(agent_version="3.3.40.0", session_type="Port", properties={"portNumber": "22"}).multiplexes


def test_the_end_of_it_counts_nanoseconds():
    assert json.loads(handshake.complete(0.5, "hello")) == {
        "HandshakeTimeToComplete": 500_000_000,
        "CustomerMessage": "hello",
    }
