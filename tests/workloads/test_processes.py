import os

from raysm.workloads.blocks import map_blocks, row_blocks
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
