"""A head in this very process: what it makes of its policy's decisions; ``test_life_cycle`` has whole clusters."""

from dataclasses import replace

import pytest

from raysm.bootstrap.exit_status import STOPPED, ExitStatus
from raysm.bootstrap.head import Head
from raysm.bootstrap.worker import Worker
from raysm.contract import events
from raysm.errors import ClusterNotFormed
from tests.support.bootstraps import Cluster, live, request


def test_a_worker_that_is_told_itself_as_the_head_does_not_call_there_and_says_why(tmp_path):
    # As by a wrong /etc/hosts: the head's name means loopback.
    cluster = Cluster(tmp_path, request(2, join_timeout_s=0.5), hosts=["localhost", "worker"])
    instance = cluster.prepare("worker")
    instance = replace(instance, environment=replace(instance.environment, addresses={}))
    with pytest.raises(ClusterNotFormed, match="the name localhost resolves to 127.0.0.1 here, which is this instance"):
        live(Worker, instance)


def test_a_head_that_is_told_to_stop_before_its_cluster_is_formed_ends_as_stopped(tmp_path, capfd):
    status = live(Head, Cluster(tmp_path, request(2)).prepare("algo-1"), Head.stop)
    assert status == ExitStatus(STOPPED, stopped=True)
    states = filter(None, map(events.parse, capfd.readouterr().out.splitlines()))
    assert [state.name for state in states] == ["joined", "stopping"]
