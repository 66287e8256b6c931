"""Cells of other instances: by whom they are done, and in processes of Ray's."""

import asyncio
import pickle
import shutil
import tempfile
from pathlib import Path

import pytest

from raysm.contract.session import CELL, PULL, CallRequest, Outcome
from raysm.errors import InvalidRequest
from raysm.workloads.session.calls import Call
from raysm.workloads.session.instances import ByInstance, InstanceCells
from raysm.workloads.session.printing import Printing
from tests.support.interrupting import interrupted

WAIT_S = 120.0


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


def with_cells(script):
    """Run the coroutine function ``script(cells, run)``; its one instance is the head, too."""

    async def go():
        # Short: a socket's path has at most 107 bytes.
        private = Path(tempfile.mkdtemp(prefix="ri"))
        printing = Printing(private / "s")
        await printing.start()
        cells = InstanceCells("algo-1", printing)

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
            ended = await interrupted(cells, sleeping, tmp_path / "spill", (tmp_path / "began").exists)
            return ended, await run("x")

        ended, after = with_cells(script)
        assert (ended.error.cancelled, after.shown["text/plain"]) == (True, "5")

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
