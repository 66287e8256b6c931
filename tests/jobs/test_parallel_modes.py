"""Parallelism whose groups lie over instances follows the training of one process."""

from pathlib import Path

import pytest
import torch

from raysm.request import Cluster
from raysm.workloads.training.loop import session as sessions
from tests.support import parallel_modes
from tests.support.jobs import completed, training_request

TOLERANCE = 1e-5


# 45 s: each mode alone is held to one process by workloads/training/test_parallel_modes, in processes of one machine.
@pytest.mark.long
@pytest.mark.namespace
def test_on_two_instances_of_two_workers_each_way_to_lie_over_them_follows_one_process(tmp_path):
    try:
        losses, weights, _ = parallel_modes.train(None)
    finally:
        sessions.end()
    code = Path(parallel_modes.__file__).read_text()
    request = training_request(tmp_path, code, cluster=Cluster(count=2), workers_per_instance=2)
    outcome, log, model = completed(request, tmp_path / "job")
    assert outcome.status == "Completed", f"{outcome.failure_reason}\n{log.text()}"
    found = torch.load(model / "rank-0.pt")
    for mode in parallel_modes.ACROSS:
        assert found[mode][0] == pytest.approx(losses, abs=TOLERANCE), mode
        assert list(found[mode][1]) == list(weights)
        worst = max(float((found[mode][1][name] - weights[name]).abs().max()) for name in weights)
        assert worst < TOLERANCE, f"{mode}: {worst}"
    # Stages of one replica within an instance, and over instances.
    assert "rank 1 on algo-1: replica 1 of 2, pipeline rank 2 of 2" in log.text()
    assert "rank 1 on algo-1: replica 2 of 2, pipeline rank 1 of 2" in log.text()
