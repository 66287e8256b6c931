"""Work on other instances."""

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
import ray

from raysm.contract.session import BATCH, CELL, PULL, SHELL, CallRequest, Outcome
from raysm.errors import InvalidRequest
from raysm.workloads.session.calls import Call
from raysm.workloads.session.relay import Printing
from raysm.workloads.session.remote_calls import ByInstance, InstanceCells, RemoteCalls
from tests.support.interrupting import interrupted

WAIT_S = 300.0


def call(body, kind=CELL, *, host="algo-1", id="c"):
    return Call(id, CallRequest(kind=kind, name="a cell", host=host), body.encode(), lambda: None)


class Named:
    """Does calls by saying who it is."""

    def __init__(self, name):
        self.name, self.interrupted = name, []

    async def run(self, call):
        return self.name.encode(), False

    def interrupt(self, call):
        self.interrupted.append(call.id)


@pytest.mark.parametrize(("host", "who"), [("", "here"), ("algo-1", "here"), ("algo-2", "elsewhere")])
def test_a_cell_is_done_where_it_is_to_run(host, who):
    here, elsewhere = Named("here"), Named("elsewhere")
    executor, asked = ByInstance("algo-1", here, elsewhere), call("1", host=host)
    assert asyncio.run(executor.run(asked)) == (who.encode(), False)
    executor.interrupt(asked)
    assert {"here": here, "elsewhere": elsewhere}[who].interrupted == ["c"]


def with_cells(script, **more):
    """Run the coroutine function ``script(cells, run)``; its one instance is the head, too."""

    async def go():
        # Short: a socket's path has at most 107 bytes.
        private = Path(tempfile.mkdtemp(prefix="ri"))
        printing = Printing(private / "s")
        await printing.start()
        cells = InstanceCells("algo-1", printing, **more)

        async def run(*args, **how):
            return Outcome.decode((await cells.run(call(*args, **how)))[0])

        try:
            return await asyncio.wait_for(script(cells, run), WAIT_S)
        finally:
            printing.close()
            shutil.rmtree(private)

    return asyncio.run(go())


@pytest.mark.usefixtures("ray_here")
class TestInProcessesOfRays:
    """Each of these starts processes."""

    def test_cells_share_a_namespace_and_what_they_print_comes_before_their_end(self):
        async def script(cells, run):
            await run("x = 20")
            printing = call("print('in there')\nx + 1")
            outcome, has_failed = await cells.run(printing)
            pulled = await run('["x"]', PULL)
            return printing.output.since(0), Outcome.decode(outcome), has_failed, pickle.loads(pulled.pickled)

        pieces, outcome, has_failed, pulled = with_cells(script)
        assert "".join(piece.text for piece in pieces) == "in there\n"
        assert (outcome.shown["text/plain"], has_failed, pulled) == ("21", False, {"x": 20})

    def test_a_failure_has_its_own_lines_and_the_namespace_stays(self):
        async def script(cells, run):
            return await run("x = 1\n1 / 0"), await run("raise SystemExit(3)"), await run("x")

        failed, left, after = with_cells(script)
        assert (failed.error.type, failed.error.host) == ("ZeroDivisionError", "algo-1")
        assert "raysm/workloads" not in failed.error.traceback
        assert (left.error.type, after.shown["text/plain"]) == ("SystemExit", "1")

    def test_a_cell_in_a_sleep_is_interrupted_and_the_namespace_stays(self, tmp_path):
        async def script(cells, run):
            await run("x = 5")
            sleeping = call(f"import time\nopen({str(tmp_path / 'began')!r}, 'w')\ntime.sleep(600)")
            ended = await interrupted(cells, sleeping, (tmp_path / "began").exists)
            return ended, await run("x")

        ended, after = with_cells(script)
        assert (ended.error.cancelled, after.shown["text/plain"]) == (True, "5")

    def test_a_signal_that_comes_late_does_not_interrupt_the_next_cell(self, tmp_path):
        @ray.remote(num_cpus=0)
        def late(pid, number):
            time.sleep(3)
            os.kill(pid, number)

        async def script(cells, run):
            sleeping = call(f"import time\nopen({str(tmp_path / 'began')!r}, 'w')\ntime.sleep(600)")
            await interrupted(cells, sleeping, (tmp_path / "began").exists)
            return await run("time.sleep(6)\n'unharmed'")

        assert with_cells(script, strike=late).shown["text/plain"] == "'unharmed'"

    def test_one_that_waits_and_is_interrupted_never_runs(self, tmp_path):
        async def script(cells, run):
            first = asyncio.create_task(run("import time\ntime.sleep(1)", id="first"))
            waiting = call(f"open({str(tmp_path / 'ran')!r}, 'w')")
            second = asyncio.create_task(cells.run(waiting))
            await asyncio.sleep(0)
            waiting.is_cancelled = True
            await first
            return Outcome.decode((await second)[0])

        assert with_cells(script).error.cancelled
        assert not (tmp_path / "ran").exists()

    def test_a_process_that_dies_takes_its_namespace_along_and_says_so(self):
        async def script(cells, run):
            await run("x = 1")
            return await run("import os\nos._exit(3)"), await run("'x' in globals()")

        died, after = with_cells(script)
        assert died.error.type == "WorkerDied"
        assert died.error.message.startswith("the process of a cell died: Worker")
        assert died.error.message.endswith("the namespace of algo-1 is lost with it")
        assert after.shown["text/plain"] == "False"

    def test_an_instance_that_there_is_not_is_named_with_those_that_there_are(self):
        async def script(cells, run):
            with pytest.raises(InvalidRequest, match="no instance 'algo-9': the session has algo-1"):
                await run("1", host="algo-9")

        with_cells(script)

    def test_very_much_output_arrives_whole(self):
        async def script(cells, run):
            printing = call("for number in range(1000):\n    print(number)")
            await cells.run(printing)
            return "".join(piece.text for piece in printing.output.since(0))

        assert with_cells(script).split() == [str(number) for number in range(1000)]


pytestmark = pytest.mark.usefixtures("ray_here")


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
        return await interrupted(calls, call, (tmp_path / "begun").exists)

    assert with_calls(tmp_path, script).error.cancelled


def test_as_many_processes_as_fit_run_at_once_and_of_too_large_ones_none():
    assert RemoteCalls.slots(1, 0) == 2
    assert RemoteCalls.totals()[0] == 2
    with pytest.raises(InvalidRequest, match="num_gpus=4 fits on no instance: the largest has 2 CPUs and 0 GPUs"):
        RemoteCalls.slots(1, 4)
