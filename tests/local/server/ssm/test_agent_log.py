"""What the embedded agent writes into its own log stream."""

import asyncio

import pytest

from raysm.client.service import Service
from raysm.client.tunnel.session import Sessions, port_document, target_of
from raysm.errors import ServiceError
from raysm.local.scenario import Logs, Scenario, Ssm
from raysm.local.server.ssm.agent_log import agent_lines
from raysm.request import Local
from tests.local.server.test_scenarios import playing


def test_without_remote_debugging_there_is_no_agent():
    assert agent_lines(Scenario(), remote_debug=False) == []


def test_one_that_may_connect_does_not_complain():
    assert agent_lines(Scenario(), remote_debug=True) == ["amazon-ssm-agent: the control channel is open"]


@pytest.mark.parametrize(
    ("scenario", "remote_debug"),
    [(Scenario(ssm=Ssm(permitted=False)), True), (Scenario(logs=Logs(ssm_streams=True)), False)],
)
def test_one_that_may_not_names_the_permission(scenario, remote_debug):
    (line,) = agent_lines(scenario, remote_debug=remote_debug)
    assert "not authorized to perform ssmmessages:OpenControlChannel" in line


def test_whoever_wants_in_is_told_what_the_agent_complains_of(tmp_path):
    with playing(tmp_path / "home", "[ssm]\npermitted = false\n") as server:
        server.train("poor", "while :; do sleep 0.1; done", RemoteDebugConfig={"EnableRemoteDebug": True})
        server.reached("poor", "Training")
        sessions = Sessions(Service(Local(home=str(server.home)), clients=server.client), connect_s=0.0)
        words = r"last words: .* to perform ssmmessages:OpenControlChannel \(.*, stream poor/algo-1-\d+/ssm\)"
        with pytest.raises(ServiceError, match=f"is not connected.*permissions of ssmmessages.*{words}"):
            asyncio.run(sessions.start(target_of("poor", "algo-1"), port_document(1)))
        server.sm.stop_training_job(TrainingJobName="poor")
        server.ended("poor")
