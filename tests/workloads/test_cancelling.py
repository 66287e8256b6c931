"""Tasks of Ray that are ended by a process beside the one that submitted them."""

import os
import time

import pytest

from raysm.workloads.cancelling import cancel

WAIT_S = 120.0


def test_a_task_that_runs_is_ended_with_its_process(ray_here, tmp_path):
    def sleeps():
        (tmp_path / "pid").write_text(str(os.getpid()))
        (tmp_path / "pid").rename(tmp_path / "runs")
        time.sleep(600)

    task = ray_here.remote(max_retries=0)(sleeps).remote()
    deadline_s = time.monotonic() + WAIT_S
    while not (tmp_path / "runs").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    cancel([task])
    # Cancelled, or crashed: which of them Ray says depends on what reaches it first.
    with pytest.raises(ray_here.exceptions.RayError):
        ray_here.get(task, timeout=WAIT_S)


def test_a_task_that_waits_never_begins(ray_here, tmp_path):
    waits = ray_here.remote(num_cpus=1, label_selector={"raysm.io/host": "algo-77"})(
        lambda path: os.mkdir(path)
    ).remote(tmp_path / "begun")
    cancel([waits])
    with pytest.raises(ray_here.exceptions.TaskCancelledError):
        ray_here.get(waits, timeout=WAIT_S)
    assert not (tmp_path / "begun").exists()


def test_a_task_that_has_ended_keeps_its_value(ray_here):
    task = ray_here.remote(lambda x: abs(x)).remote(-1)
    assert ray_here.get(task, timeout=WAIT_S) == 1
    cancel([task])
    assert ray_here.get(task, timeout=WAIT_S) == 1


@pytest.mark.long
def test_short_tasks_that_end_while_they_are_cancelled_leave_their_owner_alive(ray_here):
    """Cancelled in their own process, tasks of this number end it in most runs."""
    short = ray_here.remote(num_cpus=0.2, max_retries=0)(lambda duration_s: time.sleep(duration_s))
    for _ in range(60):
        tasks = [short.remote(0.001) for _ in range(50)]
        ray_here.wait(tasks, num_returns=10, timeout=WAIT_S)
        cancel(tasks)
    assert ray_here.get(ray_here.remote(lambda x: abs(x)).remote(-1), timeout=WAIT_S) == 1
