"""A script for torchrun: which of its workers' ends is the reason."""

from raysm.workloads.training.launch.agent import Exit
from raysm.workloads.training.launch.failure_attribution import attribute_failure
from raysm.workloads.training.launch.torch_script import first_failure


def exited(rank, status, at_s, **more):
    return Exit(rank=rank, status=status, at_s=at_s, **more)


def test_the_first_that_failed_by_itself_is_the_reason():
    exits = [exited(0, 0, 1.0), exited(1, 1, 9.0), exited(2, 2, 5.0), exited(3, -15, 4.0, was_ended=True)]
    assert first_failure(exits).rank == 2


def test_where_all_ended_well_there_is_none():
    assert first_failure([exited(0, 0, 1.0), exited(1, 0, 2.0)]) is None


def test_its_status_becomes_an_exit_code():
    assert attribute_failure(2, "algo-1", -9, "").exit_code == 137
