"""A script for torchrun: when its other workers are ended after a failure."""

import pytest

from raysm.workloads.training.launch.failure_attribution import CAUSE_S, attribute_failure
from raysm.workloads.training.launch.torch_script import is_settled

LOST = "Traceback (most recent call last):\nRuntimeError: Connection closed by peer\n"


@pytest.mark.parametrize(
    ("status", "stderr", "failed_for_s", "settled"),
    [
        (-9, "", 0.0, True),
        (2, "usage: main.py\n", 0.0, True),
        (1, LOST, 0.0, False),
        (1, LOST, CAUSE_S / 2, False),
        (1, LOST, CAUSE_S * 2, True),
    ],
)
def test_a_worker_that_lost_a_peer_lets_the_others_end_by_themselves_for_a_while(status, stderr, failed_for_s, settled):
    assert is_settled(attribute_failure(0, "algo-1", status, stderr), failed_for_s) is settled
