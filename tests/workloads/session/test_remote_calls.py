"""Batches and commands as tasks of Ray: their outcomes, how their processes die, how they are interrupted."""

import asyncio
import os
import pickle
import signal

import cloudpickle
import pytest

from raysm.contract.session import BATCH, SHELL, CallRequest, Outcome
from raysm.errors import InvalidRequest
from raysm.workloads.session.calls import Call
from raysm.workloads.session.remote_calls import RemoteCalls
from tests.support.interrupting import interrupted

pytestmark = pytest.mark.usefixtures("ray_here")

WAIT_S = 120.0


def with_calls(folder, script):
    """Run the coroutine function ``script(calls)`` with a RemoteCalls."""

    async def go():
        return await asyncio.wait_for(script(RemoteCalls("algo-1", folder)), WAIT_S)

    return asyncio.run(go())


def batch_of(items, first=0, **fields):
    body = pickle.dumps([cloudpickle.dumps(item) for item in items])
    request = CallRequest(kind=BATCH, name="f", function="digest", first=first, num_cpus=1, **fields)
    return Call("b", request, body, lambda: None)


def values(encoded):
    _, outcomes = pickle.loads(Outcome.decode(encoded).pickled)
    decoded = [Outcome.decode(outcome) for outcome in outcomes]
    return [pickle.loads(each.pickled) if each.error is None else each.error for each in decoded]


def test_a_batch_has_an_outcome_for_each_item(tmp_path):
    async def script(calls):
        calls.keep_function("digest", cloudpickle.dumps((abs, (), {})))
        return await calls.run(batch_of([-1, -2]))

    assert values(with_calls(tmp_path, script)[0]) == [1, 2]


def test_of_a_batch_whose_process_dies_each_item_is_tried_by_itself(tmp_path):
    def work(item):
        if item == "kills":
            os.kill(os.getpid(), signal.SIGKILL)
        if item == "dies once" and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    async def script(calls):
        calls.keep_function("digest", cloudpickle.dumps((work, (), {})))
        return await calls.run(batch_of(["well", "dies once", "kills"], first=10, return_exceptions=True))

    well, once, killed = values(with_calls(tmp_path, script)[0])
    assert (well, once) == ("well", "dies once")
    assert (killed.type, killed.item) == ("WorkerDied", 12)
    assert "3 processes died of it" in killed.message


def test_a_batch_whose_function_was_not_sent_is_refused(tmp_path):
    async def script(calls):
        with pytest.raises(InvalidRequest, match="'digest' of the batch was not sent"):
            await calls.run(batch_of([1]))

    with_calls(tmp_path, script)


def test_a_command_runs_where_it_is_told_to(tmp_path):
    async def script(calls):
        here = Call("s", CallRequest(kind=SHELL, name="pwd"), b"pwd", lambda: None)
        outcome, _ = await calls.run(here)
        nowhere = Call("t", CallRequest(kind=SHELL, name="pwd", host="algo-9"), b"pwd", lambda: None)
        with pytest.raises(InvalidRequest, match="no instance 'algo-9': the session has algo-1"):
            await calls.run(nowhere)
        return pickle.loads(Outcome.decode(outcome).pickled)

    assert with_calls(tmp_path, script) == {"exit_code": 0, "output": f"{tmp_path}\n"}


def test_a_command_is_interrupted_by_the_end_of_its_process(tmp_path):
    async def script(calls):
        call = Call("s", CallRequest(kind=SHELL, name="sleep"), b"touch begun; sleep 600", lambda: None)
        return await interrupted(calls, call, tmp_path / "spill", (tmp_path / "begun").exists)

    assert with_calls(tmp_path, script).error.cancelled


def test_as_many_processes_as_fit_run_at_once_and_of_too_large_ones_none():
    assert RemoteCalls.slots(1, 0) == 2
    assert RemoteCalls.totals()[0] == 2
    with pytest.raises(InvalidRequest, match="num_gpus=4 fits on no instance: the largest has 2 CPUs and 0 GPUs"):
        RemoteCalls.slots(1, 4)
