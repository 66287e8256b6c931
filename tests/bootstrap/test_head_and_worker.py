"""Head and worker in this very process: what they make of a decision; ``test_life_cycle`` has whole clusters."""

import asyncio
import socket
from dataclasses import replace

import pytest

from raysm.bootstrap.children import Children
from raysm.bootstrap.exit_status import STOPPED, ExitStatus
from raysm.bootstrap.head import Head
from raysm.bootstrap.worker import Worker
from raysm.contract import events
from raysm.errors import ClusterNotFormed
from tests.support.bootstraps import Cluster, request


def live(role, instance, after=lambda role: None):
    """Return how ``role`` ends, told ``after`` beforehand; nothing of it is left."""

    async def scenario():
        children = Children()
        member = role(instance, children)
        after(member)
        status = ExitStatus(1)
        try:
            status = await asyncio.wait_for(member.run(), 60)
        finally:
            await member.end(status)
            children.close()
        return status

    return asyncio.run(scenario())


def test_a_head_whose_control_port_is_taken_says_which(tmp_path):
    cluster = Cluster(tmp_path, request(1))
    with socket.create_server(("127.0.0.1", cluster.ports["control"])):
        with pytest.raises(ClusterNotFormed, match=f"control port {cluster.ports['control']}"):
            live(Head, cluster.prepare("algo-1"))


def test_a_head_that_is_told_to_stop_before_its_cluster_is_formed_ends_as_stopped(tmp_path, capfd):
    status = live(Head, Cluster(tmp_path, request(2)).prepare("algo-1"), Head.stop)
    assert status == ExitStatus(STOPPED, stopped=True)
    states = filter(None, map(events.parse, capfd.readouterr().out.splitlines()))
    assert [state.name for state in states] == ["joined", "stopping"]


def test_a_head_alone_runs_its_driver_and_ends_with_its_exit_code(tmp_path):
    status = live(Head, Cluster(tmp_path, request(1), driver="raise SystemExit(3)").prepare("algo-1"))
    assert status.exit_code == 3
    assert status.headline == "the driver exited with code 3"


def test_a_worker_that_is_told_to_stop_before_it_has_joined_ends_as_stopped(tmp_path):
    status = live(Worker, Cluster(tmp_path, request(2)).prepare("algo-2"), Worker.stop)
    assert status == ExitStatus(STOPPED, stopped=True)


def test_a_worker_without_a_head_says_at_its_deadline_why(tmp_path):
    with pytest.raises(ClusterNotFormed, match="algo-1 refuses connections on port"):
        live(Worker, Cluster(tmp_path, request(2, join_timeout_s=0.5)).prepare("algo-2"))


def test_a_worker_that_is_told_itself_as_the_head_does_not_call_there_and_says_why(tmp_path):
    # As by a wrong /etc/hosts: the head's name means loopback.
    cluster = Cluster(tmp_path, request(2, join_timeout_s=0.5), hosts=["localhost", "worker"])
    instance = cluster.prepare("worker")
    instance = replace(instance, environment=replace(instance.environment, addresses={}))
    with pytest.raises(ClusterNotFormed, match="the name localhost resolves to 127.0.0.1 here, which is this instance"):
        live(Worker, instance)


def test_a_worker_without_which_the_job_may_begin_leaves_it_to_the_others(tmp_path, capfd):
    instance = Cluster(tmp_path, request(2, join_timeout_s=0.5, min_instances=1)).prepare("algo-2")
    assert live(Worker, instance) == ExitStatus(0)
    assert "leaving it to the others, as min_instances=1 says" in capfd.readouterr().err
