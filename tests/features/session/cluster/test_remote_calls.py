"""Work on other instances: cells, batches and commands."""

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

from raysm.core.protocol.loop_thread import LoopThread
from raysm.errors import InvalidRequest
from raysm.features.session.cluster import remote_calls
from raysm.features.session.cluster.calls import Call, CallEnded
from raysm.features.session.cluster.output import OutputReceiver
from raysm.features.session.cluster.remote_calls import InstanceCells, RemoteCalls
from raysm.features.session.protocol import BATCH, CELL, FUNCTION, PULL, SHELL, CallRequest, Outcome
from tests.support.interrupting import interrupted

pytestmark = pytest.mark.usefixtures("ray_here")

WAIT_S = 300.0


def call(body, kind=CELL, *, host="algo-1", id="c"):
    return Call(id, CallRequest(kind=kind, name="a cell", host=host), body.encode(), lambda: None)


class Cells:
    """InstanceCells whose one instance is not the head, in an event loop that the tests of this module share."""

    def __init__(self):
        # Short: a socket's path has at most 107 bytes.
        self.private, self.loop = Path(tempfile.mkdtemp(prefix="ri")), LoopThread("test")
        self.receiver = OutputReceiver(self.private / "s")
        self.do(self.receiver.start())
        self.cells = InstanceCells("head", None, self.receiver)
        # The forwarder has to be on the head, which is the same instance here.
        self.cells._head = "algo-1"
        self.cells._is_here = lambda call: False

    def do(self, work):
        return self.loop.run(work, WAIT_S)

    async def run(self, *args, **how):
        try:
            return Outcome.decode((await self.cells.run(call(*args, **how)))[0])
        except CallEnded as ended:
            return ended.outcome

    def close(self):
        self.loop.call(self.receiver.close)
        self.loop.close()
        shutil.rmtree(self.private)


@pytest.fixture(scope="module")
def there(ray_here):
    cells = Cells()
    yield cells
    cells.close()


def test_cells_share_a_namespace_that_outlives_failures(there):
    async def script():
        await there.run("x = 20")
        printing = call("for number in range(1000):\n    print(number)\nx + 1")
        outcome, has_failed = await there.cells.run(printing)
        pulled = await there.run('["x"]', PULL)
        failures = (
            await there.run("1 / 0"),
            await there.run("raise SystemExit(3)"),
            await there.run("x"),
        )
        return (
            printing.output.read_from(0),
            Outcome.decode(outcome),
            has_failed,
            pickle.loads(pulled.pickled),
            failures,
        )

    pieces, outcome, has_failed, pulled, (failed, left, after) = there.do(script())
    assert "".join(piece.text for piece in pieces).split() == [
        str(number) for number in range(1000)
    ]
    assert (outcome.shown["text/plain"], has_failed, pulled) == ("21", False, {"x": 20})
    assert (failed.error.type, failed.error.host) == ("ZeroDivisionError", "algo-1")
    assert "raysm/features" not in failed.error.traceback
    assert (left.error.type, after.shown["text/plain"]) == ("SystemExit", "20")


def test_a_cell_is_interrupted_alone_although_the_signal_comes_late(there, tmp_path, monkeypatch):
    @ray.remote(num_cpus=0)
    def late(pid, number):
        time.sleep(1)
        os.kill(pid, number)

    async def script():
        await there.run("x = 5")
        sleeping = call(f"import time\nopen({str(tmp_path / 'began')!r}, 'w')\ntime.sleep(600)")
        waiting = call(f"open({str(tmp_path / 'ran')!r}, 'w')", id="w")
        has_ended = asyncio.create_task(
            interrupted(there.cells, sleeping, (tmp_path / "began").exists)
        )
        while not (tmp_path / "began").exists():
            await asyncio.sleep(0.01)
        # It waits for its turn, and is interrupted: it never runs.
        second = asyncio.create_task(there.cells.run(waiting))
        await asyncio.sleep(0)
        waiting.is_cancelled = True
        with pytest.raises(CallEnded):
            await second
        return await has_ended, await there.run("time.sleep(2.5)\nx")

    monkeypatch.setattr(remote_calls, "SEND_SIGNAL", late)
    ended, after = there.do(script())
    assert (ended.error.cancelled, after.shown["text/plain"]) == (True, "5")
    assert not (tmp_path / "ran").exists()


def test_a_process_that_dies_takes_its_namespace_along_and_says_so(there):
    async def script():
        await there.run("y = 1")
        return await there.run("import os\nos._exit(3)"), await there.run("'y' in globals()")

    died, after = there.do(script())
    assert died.error.type == "WorkerDied"
    assert died.error.message.startswith("the process of a cell ended without an exit code")
    assert died.error.message.endswith("the namespace of algo-1 is lost with it")
    assert after.shown["text/plain"] == "False"


def with_calls(folder, script):
    """Run the coroutine function ``script(calls)`` with a RemoteCalls."""

    async def go():
        return await asyncio.wait_for(script(RemoteCalls("algo-1", folder)), WAIT_S)

    return asyncio.run(go())


def batch_of(items, first=0, **fields):
    body = pickle.dumps([cloudpickle.dumps(item) for item in items])
    request = CallRequest(
        kind=BATCH, name="f", function="digest", first=first, num_cpus=1, **fields
    )
    return Call("b", request, body, lambda: None)


def values(encoded):
    _, outcomes = pickle.loads(Outcome.decode(encoded).pickled)
    decoded = [Outcome.decode(outcome) for outcome in outcomes]
    return [pickle.loads(each.pickled) if each.error is None else each.error for each in decoded]


def test_of_a_batch_whose_process_dies_each_item_is_tried_by_itself(tmp_path):
    def work(item):
        if item == "kills":
            os.kill(os.getpid(), signal.SIGKILL)
        if item == "dies once" and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    async def script(calls):
        with pytest.raises(InvalidRequest, match="'digest'"):
            await calls.run(batch_of([1]))
        function = CallRequest(kind=FUNCTION, name="f", function="digest")
        await calls.run(Call("f", function, cloudpickle.dumps((work, (), {})), lambda: None))
        return await calls.run(
            batch_of(["well", "dies once", "kills"], first=10, return_exceptions=True)
        )

    well, once, killed = values(with_calls(tmp_path, script)[0])
    assert (well, once) == ("well", "dies once")
    assert (killed.type, killed.item) == ("WorkerDied", 12)
    assert "3 processes died of it" in killed.message


def test_a_command_runs_where_it_is_told_to_and_is_interrupted(tmp_path):
    async def script(calls):
        here = Call("s", CallRequest(kind=SHELL, name="pwd"), b"pwd", lambda: None)
        outcome, _ = await calls.run(here)
        nowhere = Call(
            "t", CallRequest(kind=SHELL, name="pwd", host="algo-9"), b"pwd", lambda: None
        )
        with pytest.raises(InvalidRequest, match="'algo-9'.*algo-1"):
            await calls.run(nowhere)
        sleeping = Call(
            "u", CallRequest(kind=SHELL, name="sleep"), b"touch begun; sleep 600", lambda: None
        )
        ended = await interrupted(calls, sleeping, (tmp_path / "begun").exists)
        return pickle.loads(Outcome.decode(outcome).pickled), ended

    value, ended = with_calls(tmp_path, script)
    assert value == {"exit_code": 0, "output": f"{tmp_path}\n"}
    assert ended.error.cancelled


def test_as_many_processes_as_fit_run_at_once():
    assert RemoteCalls.count_slots(1, 0) == 2
    assert RemoteCalls.count_resources()[0] == 2
    with pytest.raises(InvalidRequest, match="num_gpus=4 .* 2 CPUs and 0 GPUs"):
        RemoteCalls.count_slots(1, 4)
