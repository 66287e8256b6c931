"""Calls in processes of their own: what they print, how they die, how they are interrupted."""

import asyncio
import itertools
import os
import pickle
import shutil
import signal
import tempfile
import time
from pathlib import Path

import cloudpickle
import pytest

from raysm.core.protocol.loop_thread import LoopThread
from raysm.features.session.cluster.blobs import Blobs
from raysm.features.session.cluster.calls import Call, CallEnded
from raysm.features.session.cluster.output import OutputReceiver
from raysm.features.session.cluster.processes import CallProcesses, ProcessPool
from raysm.features.session.protocol import CALL, CallRequest, Outcome
from tests.support.interrupting import interrupted

WAIT_S = 300.0


class Running:
    """CallProcesses in an event loop of its own, which the tests of this module share."""

    def __init__(self, folder):
        # Short: a socket's path has at most 107 bytes.
        self.folder, self.private = folder, Path(tempfile.mkdtemp(prefix="rc"))
        self.loop = LoopThread("test")
        self.run(self.start())

    def run(self, work):
        return self.loop.run(work, WAIT_S)

    async def start(self):
        self.receiver = OutputReceiver(self.private / "s")
        await self.receiver.start()
        self.calls = CallProcesses("algo-1", self.folder, self.receiver, Blobs(self.private))
        self.calls.prepare()

    async def stop(self):
        self.calls.close()
        self.receiver.close()

    def close(self):
        self.run(self.stop())
        self.loop.close()
        shutil.rmtree(self.private)


@pytest.fixture(scope="module")
def running(ray_here, tmp_path_factory):
    one = Running(tmp_path_factory.mktemp("calls"))
    yield one
    one.close()


def call_of(function, *args, id="c"):
    return Call(
        id, CallRequest(kind=CALL, name="f"), cloudpickle.dumps((function, args, {})), lambda: None
    )


async def value(running, function, *args, id="c"):
    outcome, has_failed = await running.calls.run(call_of(function, *args, id=id))
    assert not has_failed
    return pickle.loads(Outcome.decode(outcome).pickled)


async def end(running, function, *args):
    with pytest.raises(CallEnded) as ended:
        await running.calls.run(call_of(function, *args))
    return ended.value.outcome


def test_calls_one_after_the_other_have_one_process_their_folder_and_their_output(running):
    def work():
        print("in", os.getcwd())
        return os.getpid()

    async def script():
        call = call_of(work)
        outcome, _ = await running.calls.run(call)
        first = pickle.loads(Outcome.decode(outcome).pickled)
        return call, {
            first,
            *[await value(running, os.getpid, id=str(number)) for number in range(5)],
        }

    call, pids = running.run(script())
    assert len(pids) == 1
    assert [piece.text for piece in call.output.read_from(0)] == [f"in {running.folder}\n"]
    assert call.status.state == "running"  # Calls ends it


def test_calls_that_wait_for_one_another_all_run(running, tmp_path):
    def meet(number, count):
        (tmp_path / f"met-{number}").touch()
        while len(list(tmp_path.glob("met-*"))) < count:
            time.sleep(0.01)
        return os.getpid()

    async def script():
        # More than take turns.
        return {
            *await asyncio.gather(
                *(value(running, meet, number, 3, id=str(number)) for number in range(3))
            )
        }

    assert len(running.run(script())) == 3


def test_a_process_that_dies_is_named_although_a_child_lives_and_the_next_call_has_another_one(
    running, tmp_path
):
    release = tmp_path / "release"

    def die():
        # As a pool of multiprocessing does: the child has all that its parent had open.
        if not os.fork():
            end_s = time.monotonic() + WAIT_S
            while not release.exists() and time.monotonic() < end_s:
                time.sleep(0.05)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    async def script():
        died = await end(running, os._exit, 3)
        try:
            with_child = await asyncio.wait_for(end(running, die), WAIT_S / 3)
        finally:
            release.touch()
        return died, with_child, await value(running, abs, -1)

    died, with_child, well = running.run(script())
    assert died.error.type == with_child.error.type == "WorkerDied"
    assert died.error.message.startswith("the process of f ended without an exit code")
    assert len(died.error.message) < 200
    assert well == 1


def test_a_sleep_is_interrupted_and_its_process_does_the_next_call(running):
    async def script():
        before = await value(running, os.getpid)
        sleeping = call_of(time.sleep, 600, id="s")
        ended = await interrupted(
            running.calls, sleeping, lambda: sleeping.status.state == "running"
        )
        return ended, before, await value(running, os.getpid, id="n")

    ended, before, after = running.run(script())
    assert ended.error.cancelled
    assert before == after


def test_a_call_that_hears_no_signal_is_ended_with_its_process(running, tmp_path, monkeypatch):
    monkeypatch.setattr("raysm.features.session.cluster.processes.FORCE_S", 0.5)

    def deaf():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        (tmp_path / "deaf").touch()
        time.sleep(600)

    async def script():
        return await interrupted(running.calls, call_of(deaf), (tmp_path / "deaf").exists)

    assert running.run(script()).error.cancelled


WAIT_S = 300.0
FOR_EVER_S = 1e6


class Started:
    """A ProcessPool whose processes are numbers."""

    def __init__(self, width, held_after_s=FOR_EVER_S, idle_s=FOR_EVER_S):
        self.numbers, self.ended, self.begun, self.error = itertools.count(1), [], 0, None
        self.gate = asyncio.Event()
        self.gate.set()
        self.pool = ProcessPool(
            width, self.start, self.ended.append, held_after_s=held_after_s, idle_s=idle_s
        )

    async def start(self):
        self.begun += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return next(self.numbers)


def run(script):
    return asyncio.run(asyncio.wait_for(script(), WAIT_S))


async def settled():
    for _ in range(10):
        await asyncio.sleep(0)


async def entering(pool, *ids):
    tasks = [asyncio.create_task(pool.acquire(id)) for id in ids]
    await settled()
    return tasks


def test_a_process_too_many_ends_when_it_was_free_for_a_while():
    async def script():
        started = Started(1, held_after_s=0.001, idle_s=0.01)

        async def call(number):
            process = await started.pool.acquire(str(number))
            await asyncio.sleep(0.1)
            started.pool.release(process)

        await asyncio.gather(*(call(number) for number in range(3)))
        while started.pool.size > 1:
            await asyncio.sleep(0.01)
        return started.begun, len(started.ended)

    begun, ended = run(script)
    assert begun == ended + 1 == 3


def test_where_none_can_be_started_each_that_waits_is_told_so():
    async def script():
        started = Started(2)
        started.error = RuntimeError("no memory")
        calls = await entering(started.pool, "a", "b", "c")
        return [
            str(error) for error in await asyncio.gather(*calls, return_exceptions=True)
        ], started.begun

    assert run(script) == (["no memory"] * 3, 3)


def test_calls_that_fork_and_terminate_processes_leave_their_process_whole(running):
    def work():
        import multiprocessing

        fork = multiprocessing.get_context("fork")
        child = fork.Process(target=time.sleep, args=(WAIT_S,))
        child.start()
        child.terminate()
        child.join()
        with fork.Pool(2) as pool:
            squares = pool.map(abs, range(-50, 0))
        # The copy of this call ends where the call returns.
        if other := os.fork():
            return os.getpid(), child.exitcode, len(squares), os.waitpid(other, 0)[1]
        return None

    async def script():
        return await value(running, work, id="forks"), await value(running, os.getpid, id="after")

    (pid, exit_code, count, status), after = running.run(script())
    assert (exit_code, count, status) == (-signal.SIGTERM, 50, 0)
    assert after == pid
