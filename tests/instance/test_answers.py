"""What processes answer: coroutines that wait, and the last collectives of real ranks on gloo."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from raysm.core.protocol import script_main
from raysm.core.protocol.answers import COLLECTIVES, find_answer
from raysm.core.protocol.stacks import remarks
from raysm.instance.children import descendants
from raysm.instance.stacks import read_stacks
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and memfd")

BEGIN = """\
import os, re, time, torch
import torch.distributed as distributed
rank = int(os.environ["RANK"])
distributed.init_process_group("gloo", init_method="file://" + os.environ["STORE"], rank=rank, world_size=2)
distributed.broadcast(torch.ones(2, 3), 0)
print(rank, flush=True)
"""
AS_WORKER = """import sys
from raysm.instance.ray_imports import name_ranks
sys.meta_path.insert(0, name_ranks())
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"))
"""
WAITS = "distributed.all_reduce(torch.ones(4))\n"


@contextlib.contextmanager
def ranks_of(tmp_path, *codes):
    """Start a rank for each code, which begins once its rank has printed a line.

    The first one runs as a script, the second one as Ray's workers do.
    """
    c10d = pytest.importorskip("torch")._C._distributed_c10d
    if not hasattr(c10d, "_dump_fr_trace_json"):
        pytest.skip("this torch does not record the collectives of gloo")
    ranks = []
    try:
        for rank, code in enumerate(codes):
            script = tmp_path / f"rank{rank}.py"
            script.write_text(BEGIN + code)
            command = [
                script_main.command(str(script), []),
                [sys.executable, "-c", AS_WORKER, str(script)],
            ]
            ranks.append(
                subprocess.Popen(
                    command[rank],
                    stdout=subprocess.PIPE,
                    env={**os.environ, "RANK": str(rank), "STORE": str(tmp_path / "store")},
                    start_new_session=True,
                )
            )
        for rank in ranks:
            assert rank.stdout.readline()
        yield ranks
    finally:
        for rank in ranks:
            os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()
            rank.stdout.close()


def read():
    """Return the stacks of the ranks by their pids."""
    return {each.pid: each for each in read_stacks("algo-1", 0.2, answers=True)}


def test_blocked_rank_shows_its_collectives_and_the_rank_that_is_missing_is_named(tmp_path):
    with ranks_of(tmp_path, WAITS, "time.sleep(99)\n") as (first, second):
        found = until(lambda: difference_of(first, second))
        unasked = {each.pid: each.collectives for each in read_stacks("algo-1", 0.2)}
    stacks, sentence = found
    assert sentence == (
        "collectives of default_pg: rank 0 called 2, all_reduce [4] Float; "
        "rank 1 called only 1, broadcast [2, 3] Float"
    )
    assert unasked[first.pid] is None
    assert [(call.name, call.state) for call in stacks[first.pid].collectives] == [
        ("broadcast", "completed"),
        ("all_reduce", "scheduled"),
    ]


def difference_of(*processes):
    stacks = read()
    sentences = [*remarks([stacks[process.pid] for process in processes])]
    return (stacks, sentences[0]) if sentences else None


def read_at_match(first, second):
    """Return the stacks if the first rank was in its endless call all the time, and the second answered."""
    stacks = read()
    frame = stacks[first.pid].thread.own_frame
    is_there = frame.source.startswith("re.match") and stacks[first.pid].is_still
    return stacks if is_there and stacks[second.pid].collectives else None


def test_rank_that_holds_the_gil_and_child_that_it_forked_show_none(tmp_path):
    holds = "if os.fork():\n    re.match('(a+)+$', 'a' * 60 + 'b')\nelse:\n    time.sleep(99)\n"
    with ranks_of(tmp_path, holds, "time.sleep(99)\n") as (first, second):
        [child] = until(lambda: descendants(first.pid))
        # It closes its parent's files right after the fork.
        until(lambda: find_answer(child, COLLECTIVES) is None)
        stacks = until(lambda: read_at_match(first, second))
        assert find_answer(first.pid, COLLECTIVES) is not None
    assert stacks[first.pid].collectives is None
    assert child not in stacks or stacks[child].collectives is None
    assert [call.name for call in stacks[second.pid].collectives] == ["broadcast"]


AS_ACTOR = """\
import asyncio, sys, threading
from raysm.core.protocol import stack_signal
from raysm.core.protocol.answers import answer_with_coroutines
stack_signal.register("worker")

class Proxy:  # a user's awaitable that has any attribute
    def __await__(self):
        return self

    __iter__ = __await__

    def __next__(self):
        return None

    def __getattr__(self, name):
        return self

async def poll():
    await Proxy()

async def wait(event):
    await event.wait()  # here

async def main():
    await asyncio.gather(*(asyncio.create_task(wait(asyncio.Event())) for _ in range(300)))

loop = asyncio.new_event_loop()
loop.create_task(poll())
answer_with_coroutines(loop)
threading.Thread(target=loop.run_until_complete, args=[main()], daemon=True).start()
print(1, flush=True)
threading.Event().wait()
"""


def test_coroutines_that_wait_show_their_lines_once(tmp_path):
    script = tmp_path / "actor.py"
    script.write_text(AS_ACTOR)
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            process.stdout.readline()
            coroutines = until(lambda: find_waiting(process.pid))
            asked = {each.pid: each for each in read_stacks("algo-1", 0.2)}[process.pid].threads
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    sources = [thread.own_frame.source for thread in coroutines]
    assert sources.count("await event.wait()  # here") == 1
    assert len(sources) == 3
    assert not any(thread.is_coroutine for thread in asked)


def find_waiting(pid):
    """Return the coroutines of a process, once one of them waits for its event."""
    threads = read()[pid].threads
    coroutines = [thread for thread in threads if thread.is_coroutine]
    is_there = any("# here" in thread.own_frame.source for thread in coroutines)
    return coroutines if is_there else None
