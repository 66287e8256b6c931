"""A head in this very process: what it makes of its policy's decisions; ``test_life_cycle`` has whole clusters."""

import socket

import pytest

from raysm.bootstrap.exit_status import STOPPED, ExitStatus
from raysm.bootstrap.head import Head
from raysm.contract import events
from raysm.errors import ClusterNotFormed
from tests.support.bootstraps import Cluster, live, request


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
