"""Which cluster a task finds when it asks Ray for one."""

import os


def test_a_task_is_told_the_address_of_its_own_cluster(ray_here):
    told = ray_here.get(ray_here.remote(lambda: os.environ.get("RAY_ADDRESS")).remote())
    assert told == ray_here.get_runtime_context().gcs_address
