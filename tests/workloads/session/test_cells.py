"""Cells and their namespace."""

import asyncio
import pickle
import sys
import threading

from raysm.contract.session import CELL, CallRequest, Outcome
from raysm.workloads.session.calls import Call
from raysm.workloads.session.cells import Cells
from raysm.workloads.session.shell import Namespace


def cell(namespace, source, **fields):
    return namespace.do(CallRequest(kind=CELL, name="a cell", **fields), source.encode())


def test_it_stands_for_the_program_for_as_long_as_is_wanted():
    namespace, main, argv = Namespace(), sys.modules["__main__"], sys.argv[:]
    with namespace.as_main():
        cell(namespace, "class Model: pass")
        cell(namespace, "pass", filename="train.py", args=("--lr", "1"))
        assert sys.argv == ["train.py", "--lr", "1"]
        # As of a program: it travels by value.
        assert namespace.names["Model"].__module__ == "__main__"
        assert sys.modules["__main__"].Model is namespace.names["Model"]
    assert (sys.modules["__main__"], sys.argv) == (main, argv)


WAIT_S = 300.0


def call(body, kind=CELL, **fields):
    content = body if isinstance(body, bytes) else body.encode()
    return Call("id", CallRequest(kind=kind, name="a cell", **fields), content, lambda: None)


def run(script, cells=None):
    """Run the coroutine function ``script(cells)`` beside the main thread's cells; return what it returns."""
    cells = cells or Cells("algo-1")
    results = []

    def serve():
        try:
            results.append(asyncio.run(asyncio.wait_for(script(cells), WAIT_S)))
        finally:
            cells.end()

    thread = threading.Thread(target=serve)
    thread.start()
    cells.live()
    thread.join()
    return results[0]


def outcomes(*bodies):
    """Return the outcomes of cells that are run one after the other."""

    async def script(cells):
        return [Outcome.decode((await cells.run(call(body)))[0]) for body in bodies]

    return run(script)


def test_cells_share_one_namespace_and_show_the_value_of_their_last_line():
    first, second = outcomes("x = 20", "y = 1\nx + y")
    assert (first.error, dict(first.shown)) == (None, {})
    assert second.shown["text/plain"] == "21"


def test_a_failure_has_its_own_lines_and_none_of_raysms():
    (outcome,) = outcomes("def f():\n    return 1 / 0\n\nf()")
    assert outcome.error.type == "ZeroDivisionError"
    assert 'File "<cell 1>", line 2, in f\n    return 1 / 0' in outcome.error.traceback
    assert "raysm/workloads" not in outcome.error.traceback
    assert isinstance(pickle.loads(outcome.pickled), ZeroDivisionError)


def test_a_cell_that_leaves_takes_nobody_along():
    first, second, third = outcomes("raise SystemExit(3)", "raise SystemExit", "'still here'")
    assert (first.error.type, first.pickled) == ("SystemExit", b"")
    assert second.error is None
    assert third.shown["text/plain"] == "'still here'"


def test_a_cell_in_a_sleep_is_interrupted_and_the_namespace_stays():
    async def script(cells):
        await cells.run(call("x = 5"))
        sleeping = call("import time\nx = 6\ntime.sleep(600)\nx = 7")
        running = asyncio.create_task(cells.run(sleeping))
        while not sleeping.status.state == "running":
            await asyncio.sleep(0.01)
        while cells.namespace.get("x") != 6:
            await asyncio.sleep(0.01)
        cells.interrupt(sleeping)
        interrupted = Outcome.decode((await running)[0])
        return interrupted, Outcome.decode((await cells.run(call("x")))[0])

    interrupted, after = run(script)
    assert interrupted.error.cancelled
    assert after.shown["text/plain"] == "6"


def test_a_cell_is_interrupted_although_an_earlier_one_has_the_signal_ignored():
    async def script(cells):
        await cells.run(call("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)"))
        # With an end of its own, so that this test has one too.
        sleeping = call("import time\nfor x in range(200):\n    time.sleep(0.1)")
        running = asyncio.create_task(cells.run(sleeping))
        while "x" not in cells.namespace:
            await asyncio.sleep(0.01)
        cells.interrupt(sleeping)
        return Outcome.decode((await running)[0])

    outcome = run(script)
    assert outcome.error is not None
    assert outcome.error.cancelled


def test_a_cell_that_catches_its_interrupt_is_interrupted_once_more():
    began, caught = threading.Event(), threading.Event()
    source = (
        "import time\ntry:\n    began.set()\n    time.sleep(600)\nexcept KeyboardInterrupt:\n"
        "    caught.set()\n    time.sleep(600)"
    )

    async def script(cells):
        cells.namespace.update(began=began, caught=caught)
        asked = call(source)
        running = asyncio.create_task(cells.run(asked))
        for event in (began, caught):
            await asyncio.to_thread(event.wait, WAIT_S)
            cells.interrupt(asked)
        return Outcome.decode((await running)[0])

    assert run(script).error.cancelled
