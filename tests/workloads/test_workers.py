"""The two ways to run blocks, and their end."""

import os
import time
from dataclasses import dataclass
from functools import partial

import pytest

from raysm.workloads.blocks import PlacedBlock, map_blocks
from raysm.workloads.nodes import cluster_nodes
from raysm.workloads.row_blocks import row_blocks
from raysm.workloads.workers import cancel


def pid_of(block):
    return os.getpid()


@dataclass(frozen=True)
class Bound(PlacedBlock):
    number: int
    host: str | None = None


def crash_once(folder, block):
    mark = folder / str(block.number)
    if block.number == 3 and not mark.exists():
        mark.touch()
        os._exit(1)
    return block.number


def test_a_process_that_a_block_ends_is_replaced_also_for_blocks_that_are_bound_to_its_instance(ray_here, tmp_path):
    (host,) = {node.host for node in cluster_nodes()}
    blocks = [Bound(number, host if number % 2 else None) for number in range(8)]
    found = map_blocks(partial(crash_once, tmp_path), blocks, lasting=True)
    assert sorted(value for _, value in found) == list(range(8))


class Occupant:
    def there(self):
        return os.getpid()


def test_no_block_waits_for_a_process_that_finds_no_place(ray_here):
    occupant = ray_here.remote(num_cpus=1)(Occupant).remote()
    ray_here.get(occupant.there.remote())
    try:
        found = list(map_blocks(pid_of, row_blocks(12, 1), lasting=True))
    finally:
        ray_here.kill(occupant)
    assert sorted(block.start for block, _ in found) == list(range(12))
    assert len({pid for _, pid in found}) == 1


WAIT_S = 300.0


@pytest.mark.long
def test_short_tasks_that_end_while_they_are_cancelled_leave_their_owner_alive(ray_here):
    """Cancelled in their own process, tasks of this number end it in most runs."""
    short = ray_here.remote(num_cpus=0.2, max_retries=0)(lambda duration_s: time.sleep(duration_s))
    for _ in range(60):
        tasks = [short.remote(0.001) for _ in range(50)]
        ray_here.wait(tasks, num_returns=10, timeout=WAIT_S)
        cancel(tasks)
    assert ray_here.get(ray_here.remote(lambda x: abs(x)).remote(-1), timeout=WAIT_S) == 1
