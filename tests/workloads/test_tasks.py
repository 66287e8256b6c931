"""Blocks as tasks of Ray."""

import pytest

from raysm.workloads.files import FileBlock
from raysm.workloads.tasks import Tasks


def host_and_inputs(block, *inputs):
    return str(block), inputs


def test_a_block_becomes_a_task_with_its_name_and_its_function(ray_here):
    tasks = Tasks(1, 0)
    assert tasks.wait(0)
    reference = tasks.submit(ray_here.put(host_and_inputs), "one")
    assert ray_here.get(reference) == ("one", ())
    tasks.replace(reference)
    tasks.close([])


def test_what_is_closed_is_cancelled_also_what_no_instance_will_ever_run(ray_here):
    tasks = Tasks(1, 0)
    block = FileBlock(channel="images", name="a", size_bytes=0, host="algo-77")
    reference = tasks.submit(ray_here.put(host_and_inputs), block)
    tasks.close([reference])
    with pytest.raises(ray_here.exceptions.TaskCancelledError):
        ray_here.get(reference, timeout=90)
