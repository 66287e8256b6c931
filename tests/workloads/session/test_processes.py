"""Calls in processes of their own: what they print, how they die, how they are interrupted."""

import asyncio
import os
import pickle
import shutil
import signal
import tempfile
import time
from pathlib import Path

import cloudpickle
import pytest

from raysm.contract.session import CALL, CallRequest, Outcome
from raysm.workloads.session.blobs import Blobs
from raysm.workloads.session.calls import Call
from raysm.workloads.session.processes import CallProcesses
from raysm.workloads.session.relay import Printing
from tests.support.interrupting import interrupted

pytestmark = pytest.mark.usefixtures("ray_here")

WAIT_S = 300.0


def with_calls(folder, script):
    """Run the coroutine function ``script(calls)`` with a CallProcesses that listens."""

    async def go():
        # Short: a socket's path has at most 107 bytes.
        private = Path(tempfile.mkdtemp(prefix="rc"))
        printing = Printing(private / "s")
        await printing.start()
        calls = CallProcesses("algo-1", folder, printing, Blobs(private))
        calls.prepare()
        try:
            return await asyncio.wait_for(script(calls), WAIT_S)
        finally:
            calls.close()
            printing.close()
            shutil.rmtree(private)

    return asyncio.run(go())


def call_of(function, *args, id="c"):
    return Call(id, CallRequest(kind=CALL, name="f"), cloudpickle.dumps((function, args, {})), lambda: None)


def value(outcome):
    return pickle.loads(Outcome.decode(outcome[0]).pickled)


def test_a_call_prints_before_its_outcome_and_runs_in_its_folder(tmp_path):
    def work():
        print("in", os.getcwd())
        return 3

    async def script(calls):
        call = call_of(work)
        return call, await calls.run(call)

    call, outcome = with_calls(tmp_path, script)
    assert (value(outcome), outcome[1]) == (3, False)
    assert [piece.text for piece in call.output.since(0)] == [f"in {tmp_path}\n"]
    assert call.status.state == "running"  # it is the registry that ends it


def test_calls_one_after_the_other_have_one_process(tmp_path):
    async def script(calls):
        return {value(await calls.run(call_of(os.getpid, id=str(number)))) for number in range(5)}

    assert len(with_calls(tmp_path, script)) == 1


def test_calls_that_wait_for_one_another_all_run(tmp_path):
    def meet(number, count):
        (tmp_path / f"met-{number}").touch()
        while len(list(tmp_path.glob("met-*"))) < count:
            time.sleep(0.01)
        return os.getpid()

    async def script(calls):
        # More than take turns.
        asked = [call_of(meet, number, 4, id=str(number)) for number in range(4)]
        return {value(outcome) for outcome in await asyncio.gather(*map(calls.run, asked))}

    assert len(with_calls(tmp_path, script)) == 4


def test_a_process_that_dies_is_named_and_the_next_call_has_another_one(tmp_path):
    async def script(calls):
        died, _ = await calls.run(call_of(os._exit, 3))
        return Outcome.decode(died), value(await calls.run(call_of(abs, -1, id="d")))

    died, well = with_calls(tmp_path, script)
    assert died.error.type == "WorkerDied"
    assert died.error.message.startswith("the process of f died: Worker")
    assert len(died.error.message) < 200
    assert well == 1


def test_a_process_that_dies_and_leaves_a_child_is_not_waited_for_until_that_ends(tmp_path):
    release = tmp_path / "release"

    def die():
        # As a pool of multiprocessing does: the child has all that its parent had open.
        if not os.fork():
            end_s = time.monotonic() + WAIT_S
            while not release.exists() and time.monotonic() < end_s:
                time.sleep(0.05)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    async def script(calls):
        try:
            return Outcome.decode((await asyncio.wait_for(calls.run(call_of(die)), WAIT_S / 3))[0])
        finally:
            release.touch()

    assert with_calls(tmp_path, script).error.type == "WorkerDied"


def test_what_cannot_be_unpickled_there_is_a_failure(tmp_path):
    async def script(calls):
        call = call_of(abs, 1)
        call.body = b"nonsense"
        return Outcome.decode((await calls.run(call))[0])

    assert with_calls(tmp_path, script).error.type == "_pickle.UnpicklingError"


def test_a_sleep_is_interrupted_and_its_process_does_the_next_call(tmp_path):
    async def script(calls):
        before = value(await calls.run(call_of(os.getpid)))
        sleeping = call_of(time.sleep, 600, id="s")
        ended = await interrupted(calls, sleeping, lambda: sleeping.status.state == "running")
        return ended, before, value(await calls.run(call_of(os.getpid, id="n")))

    ended, before, after = with_calls(tmp_path, script)
    assert ended.error.cancelled
    assert before == after


def test_a_call_that_hears_no_signal_is_ended_with_its_process(tmp_path):
    def deaf():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        (tmp_path / "deaf").touch()
        time.sleep(600)

    async def script(calls):
        return await interrupted(calls, call_of(deaf), (tmp_path / "deaf").exists)

    assert with_calls(tmp_path, script).error.cancelled


def test_a_call_that_waits_for_its_turn_is_interrupted_without_a_process(tmp_path):
    async def script(calls):
        calls._crew._width = 0  # nobody's turn comes
        call = call_of(abs, -1)
        running = asyncio.create_task(calls.run(call))
        await asyncio.sleep(0)
        calls._crew.close()
        call.is_cancelled = True
        calls.interrupt(call)
        outcome, _ = await running
        call.end(outcome, True)
        return Outcome.decode(outcome), call.status.took_s

    outcome, took_s = with_calls(tmp_path, script)
    assert outcome.error.cancelled
    assert took_s == 0.0
