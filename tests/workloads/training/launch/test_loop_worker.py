"""What the end of a user's loop is to the driver."""

import pickle

from raysm.errors import WorkerFailed
from raysm.workloads.training.launch.loop_worker import LoopFailed


def test_a_failure_arrives_whole_at_the_driver():
    error = WorkerFailed(3, "algo-2", "ValueError", "no such layer", "Traceback ...", 1)
    arrived = pickle.loads(pickle.dumps(LoopFailed(12.5, error, True)))
    assert (arrived.at_s, arrived.stopped, str(arrived)) == (12.5, True, str(error))
    assert (arrived.error.rank, arrived.error.host, arrived.error.error_type) == (3, "algo-2", "ValueError")
