import os
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest

from raysm.core.protocol.names import LABEL_HOST
from raysm.errors import BlockFailed, InstanceLost, InvalidInput, InvalidRequest
from raysm.instance.work.blocks import FileBlock, PlacedBlock, map_blocks, task_slots
from raysm.instance.work.failure import failure_of
from raysm.instance.work.nodes import Presence, answers, ask_every_node, cluster_nodes
from raysm.instance.work.record import BlockRecord
from raysm.instance.work.row_blocks import RowBlock, row_blocks
from raysm.instance.work.workers import cancel
from tests.support.waiting import until


def count(folder: Path, block: RowBlock) -> int:
    with (folder / str(block).replace(" ", "-")).open("a") as file:
        file.write("x")
    return block.rows


def executions(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def fail_until(folder: Path, attempts: int, block: RowBlock) -> int:
    """Fail: the first block raises, others end their process."""
    count(folder, block)
    tried = (folder / str(block).replace(" ", "-")).stat().st_size
    if tried < attempts:
        if block.start:
            os._exit(7)
        raise OSError(f"attempt {tried} of {block}")
    return block.start


def refuse(block: RowBlock) -> int:
    raise InvalidInput(f"{block} holds nothing")


def large(size: int, block: RowBlock) -> bytes:
    return bytes([block.start % 256]) * size


def first_fails_others_sleep(folder: Path, block: RowBlock) -> int:
    if block.start == 0:
        raise OSError("no")
    (folder / f"{os.getpid()}").touch()
    time.sleep(600)
    return 0


def test_every_block_is_computed_once_and_its_value_yielded(ray_here, tmp_path):
    seen = []
    blocks = row_blocks(100, 7)
    values = dict(
        map_blocks(partial(count, tmp_path), blocks, on_progress=lambda *done: seen.append(done))
    )
    assert values == {block: block.rows for block in blocks}
    assert executions(tmp_path) == len(blocks)
    assert seen == [(n, 15) for n in range(1, 16)]


def test_a_block_that_fails_or_ends_its_process_is_tried_again(ray_here, tmp_path):
    values = dict(map_blocks(partial(fail_until, tmp_path, 3), row_blocks(2, 1), retries=2))
    assert values == {RowBlock(0, 1): 0, RowBlock(1, 2): 1}
    assert executions(tmp_path) == 6


def test_a_block_that_always_fails_ends_the_work_with_its_name_and_traceback(ray_here, tmp_path):
    with pytest.raises(BlockFailed) as caught:
        list(map_blocks(partial(fail_until, tmp_path, 99), row_blocks(3, 3), retries=1))
    assert caught.value.block == "rows 0 to 2"
    assert caught.value.attempts == 2
    assert "OSError: attempt 2 of rows 0 to 2" in caught.value.remote_traceback
    assert executions(tmp_path) == 2


class OfThree(Exception):
    """Pickles, but cannot be unpickled: it is made of three parts, and pickle passes one."""

    def __init__(self, table: str, key: str, why: str) -> None:
        super().__init__(f"{table} has no {key}: {why}")


class WithLock(Exception):
    """Cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def users_error(folder: Path, kind: str, block: RowBlock) -> int:
    count(folder, block)
    if kind == "unreadable":
        raise OfThree("prices", "zip", "it is new")
    if kind == "unpicklable":
        raise WithLock("it is\nlocked")
    return {"rows": 1}["text"]


@pytest.mark.parametrize(
    ("kind", "cause", "lasting"),
    [
        ("key", "KeyError: 'text'", True),
        ("unreadable", "OfThree: prices has no zip: it is new", False),
        ("unpicklable", "WithLock: it is\nlocked", False),
    ],
)
def test_what_the_users_function_raises_is_said_first_and_not_tried_again(
    ray_here, tmp_path, kind, cause, lasting
):
    with pytest.raises(BlockFailed) as caught:
        list(map_blocks(partial(users_error, tmp_path, kind), row_blocks(3, 3), lasting=lasting))
    assert caught.value.cause.endswith(cause)
    assert executions(tmp_path) == 1
    first, *_, last = failure_of(caught.value).reason().splitlines()
    assert first.startswith("BlockFailed: rows 0 to 2 failed: ")
    assert first.endswith(cause.splitlines()[0])
    assert last == cause.splitlines()[-1] or last.endswith(cause)
    assert "deserialize" not in str(caught.value)


def test_when_one_block_fails_the_others_are_cancelled(ray_here, tmp_path):
    with pytest.raises(BlockFailed):
        list(map_blocks(partial(first_fails_others_sleep, tmp_path), row_blocks(4, 1), retries=0))
    until(lambda: not any(psutil.pid_exists(int(file.name)) for file in tmp_path.iterdir()), 120)
    assert next(iter(map_blocks(large_of_one, row_blocks(1, 1))))[1] == b"\0"


def large_of_one(block: RowBlock) -> bytes:
    return large(1, block)


def recorded(folder):
    return BlockRecord(
        folder, {"request": 1}, encode=lambda value: [str(value).encode()], decode=int_of
    )


def int_of(data):
    return int(bytes(data))


def test_a_restarted_job_computes_nothing_that_is_whole(ray_here, tmp_path):
    calls = tmp_path / "calls"
    calls.mkdir()
    blocks = row_blocks(10, 1)
    record = recorded(tmp_path / "record")
    first = map_blocks(partial(count, calls), blocks, record=record, in_flight=1)
    for _ in range(4):
        next(first)
    first.close()
    before = executions(calls)
    again = recorded(tmp_path / "record")
    assert dict(map_blocks(partial(count, calls), blocks, record=again)) == {
        block: 1 for block in blocks
    }
    assert 4 <= before <= 5
    assert executions(calls) - before == 10 - 4
    assert dict(map_blocks(partial(count, calls), blocks, record=again)) == {
        block: 1 for block in blocks
    }
    assert executions(calls) - before == 10 - 4


def test_memory_does_not_grow_with_the_number_of_blocks(ray_here):
    process, size = psutil.Process(), 8 << 20
    peak = 0
    # Pages of the object store are shared, and mapped as they are read: count the process's own.
    start = process.memory_full_info().uss
    store = ray_here.cluster_resources()["object_store_memory"]
    blocks = row_blocks(int(1.5 * store / size), 1)
    for block, value in map_blocks(partial(large, size), blocks, in_flight=4):
        assert value[0] == block.start % 256
        peak = max(peak, process.memory_full_info().uss)
    assert len(blocks) * size > store
    assert peak - start < 8 * size


@pytest.mark.parametrize("options", [{"retries": -1}, {"in_flight": 0}])
def test_an_option_out_of_range_is_refused_before_anything_runs(options):
    with pytest.raises(InvalidRequest, match=next(iter(options))):
        next(map_blocks(refuse, row_blocks(1, 1), **options))


def test_a_task_that_no_instance_can_hold_is_refused_at_once(ray_here):
    with pytest.raises(InvalidRequest, match="num_cpus=64 .* 2 CPUs"):
        next(map_blocks(refuse, row_blocks(1, 1), num_cpus=64))
    assert task_slots(0.5) == 4


def where(block: FileBlock) -> str:
    import ray

    return ray.get_runtime_context().get_node_labels()[LABEL_HOST]


@dataclass(frozen=True)
class Placed(PlacedBlock):
    name: str
    host: str
    inputs: tuple[object, ...] = ()


def placed_with(block: Placed, *inputs: str) -> tuple[str, ...]:
    return (where(block), *inputs)


def test_a_users_block_can_say_where_it_runs_and_what_comes_along(ray_here):
    block = Placed("x", "algo-1", (ray_here.put("rows"),))
    assert list(map_blocks(placed_with, [block])) == [(block, ("algo-1", "rows"))]


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


def test_a_process_that_a_block_ends_is_replaced_also_for_blocks_that_are_bound_to_its_instance(
    ray_here, tmp_path
):
    (host,) = {node.host for node in cluster_nodes()}
    blocks = [Bound(number, host if number % 2 else None) for number in range(8)]
    found = map_blocks(partial(crash_once, tmp_path), blocks, lasting=True)
    assert sorted(value for _, value in found) == list(range(8))


def end_when_told(folder, block):
    """Note the process; the block 1 ends it once, when the file ``end`` is there."""
    (folder / f"process {block.number}").write_text(str(os.getpid()))
    if block.number == 1 and not (folder / "ended").exists():
        until(lambda: (folder / "end").exists(), WAIT_S)
        (folder / "ended").touch()
        os._exit(1)
    return block.number


def state_of_actor(pid):
    from ray._private.state import actors

    return next(actor["State"] for actor in actors().values() if actor["Pid"] == pid)


def test_a_process_that_ended_gets_no_more_blocks_while_others_end_theirs(ray_here, tmp_path):
    # Two processes with blocks in turns: one has the odd ones.
    blocks = [Bound(number) for number in range(24)]
    found = map_blocks(
        partial(end_when_told, tmp_path), blocks, lasting=True, in_flight=8, retries=1
    )
    values = [next(found)[1]]
    (tmp_path / "end").touch()
    until(lambda: (tmp_path / "ended").exists(), WAIT_S)
    pid = int((tmp_path / "process 1").read_text())
    until(lambda: state_of_actor(pid) == "DEAD", WAIT_S)
    assert sorted(values + [value for _, value in found]) == list(range(24))


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


# By chance, as it is Ray that may end the process: 12 s of a core for what one line decides.
@pytest.mark.soak
def test_short_tasks_that_end_while_they_are_cancelled_leave_their_owner_alive(ray_here):
    """Cancelled in their own process, tasks of this number end it in most runs."""
    short = ray_here.remote(num_cpus=0.2, max_retries=0)(lambda duration_s: time.sleep(duration_s))
    for _ in range(60):
        tasks = [short.remote(0.001) for _ in range(50)]
        ray_here.wait(tasks, num_returns=10, timeout=WAIT_S)
        cancel(tasks)
    assert ray_here.get(ray_here.remote(lambda x: abs(x)).remote(-1), timeout=WAIT_S) == 1


def answer(text):
    if text == "unusable":
        raise InvalidInput("a.npy is no matrix")
    if text == "wrong":
        raise KeyError(text)
    if text == "gone":
        os._exit(1)
    return text


def ask(text):
    return list(ask_every_node(answer, text, max_retries=0).values())


def test_files_that_an_instance_cannot_use_are_the_users_error_without_rays_traceback(ray_here):
    with pytest.raises(InvalidInput) as raised:
        answers(ask("unusable"))
    assert (str(raised.value), raised.value.__suppress_context__) == ("a.npy is no matrix", True)


def nodes(*hosts: str) -> list[dict[str, dict[str, object]]]:
    return [{"Labels": {LABEL_HOST: host}, "Resources": {"CPU": 1.0}} for host in hosts]


def test_a_block_whose_instance_stays_away_is_given_up():
    block = FileBlock(channel="images", name="a", size_bytes=0, host="algo-2")
    presence = Presence(1, 0)
    presence.check([block, RowBlock(0, 1)], nodes("algo-1"), 0.0)
    presence.check([block], nodes("algo-1", "algo-2"), 50.0)
    presence.check([block], nodes("algo-1"), 100.0)
    presence.check([block], nodes("algo-1"), 160.0)
    with pytest.raises(InstanceLost, match="algo-2 .* 61 s.* file images/a"):
        presence.check([block], nodes("algo-1"), 161.0)


def test_blocks_that_no_instance_is_left_to_run_are_given_up():
    presence = Presence(1, 0)
    head = {"Labels": {LABEL_HOST: "algo-1"}, "Resources": {"memory": 1.0}}
    presence.check([RowBlock(0, 1)], [head], 0.0)
    presence.check([RowBlock(0, 1)], [head, *nodes("algo-2")], 50.0)
    presence.check([RowBlock(0, 1)], [head], 100.0)
    presence.check([RowBlock(0, 1)], [head], 160.0)
    with pytest.raises(InstanceLost, match=" 61 s no instance .* num_cpus=1"):
        presence.check([RowBlock(0, 1)], [head], 161.0)
