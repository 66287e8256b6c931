"""A head in this very process: what it makes of its policy's decisions; ``test_life_cycle`` has whole clusters."""

from raysm.bootstrap.exit_status import STOPPED, ExitStatus
from raysm.bootstrap.head import Head
from raysm.contract import events
from tests.support.bootstraps import Cluster, live, request


def test_a_head_that_is_told_to_stop_before_its_cluster_is_formed_ends_as_stopped(tmp_path, capfd):
    status = live(Head, Cluster(tmp_path, request(2)).prepare("algo-1"), Head.stop)
    assert status == ExitStatus(STOPPED, stopped=True)
    states = filter(None, map(events.parse, capfd.readouterr().out.splitlines()))
    assert [state.name for state in states] == ["joined", "stopping"]
