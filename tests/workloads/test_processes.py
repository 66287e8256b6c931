import os
from dataclasses import dataclass

from raysm.workloads.blocks import PlacedBlock, map_blocks, row_blocks
from raysm.workloads.nodes import cluster_nodes
from raysm.workloads.processes import Processes


def pid_of(block):
    return os.getpid()


def test_lasting_processes_do_all_blocks(ray_here):
    found = list(map_blocks(pid_of, row_blocks(12, 1), lasting=True))
    assert sorted(block.start for block, _ in found) == list(range(12))
    # As many as the cluster runs at once.
    assert len({pid for _, pid in found}) <= 2


def crash_once(folder, block):
    mark = folder / str(block.start)
    if block.start == 3 and not mark.exists():
        mark.touch()
        os._exit(1)
    return block.start


def test_a_process_that_a_block_ends_is_replaced(ray_here, tmp_path):
    from functools import partial

    found = map_blocks(partial(crash_once, tmp_path), row_blocks(8, 1), lasting=True)
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


def test_a_process_that_is_replaced_is_another_one(ray_here):
    processes = Processes(1, 1, 0)
    try:
        function = ray_here.put(pid_of)
        assert processes.wait(90)
        first = processes.submit(function, "one")
        pid = ray_here.get(first)
        assert ray_here.get(processes.submit(function, "two")) == pid
        processes.replace(first)  # is long done: nothing died over it any more
        assert processes.wait(90)
    finally:
        processes.close([])


@dataclass(frozen=True)
class Bound(PlacedBlock):
    number: int
    host: str | None = None


def test_a_block_goes_to_a_process_of_the_instance_that_it_is_bound_to(ray_here):
    (host,) = {node.host for node in cluster_nodes()}
    blocks = [Bound(number, host if number % 2 else None) for number in range(6)]
    assert len(list(map_blocks(pid_of, blocks, lasting=True))) == 6


def test_no_process_of_another_instance_takes_a_block(ray_here):
    processes = Processes(1, 1, 0)
    try:
        assert processes.wait(90, Bound(0))
        assert not processes.wait(0, Bound(1, "algo-7"))
    finally:
        processes.close([])
