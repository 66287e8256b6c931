"""Cells, shell commands, and their namespace."""

import asyncio
import os
import pickle
import sys
import threading

import pytest

from raysm.core.protocol.stack_signal import read_cell
from raysm.features.session.cluster.calls import Call
from raysm.features.session.cluster.cells import Cells
from raysm.features.session.cluster.namespace import MAX_DISPLAY_BYTES, Namespace
from raysm.features.session.cluster.outcomes import outcome_from_error
from raysm.features.session.protocol import CELL, CallRequest, Outcome


def cell(namespace, source, **fields):
    return namespace.execute(CallRequest(kind=CELL, name="a cell", **fields), source.encode())


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


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and memfd")
def test_lines_of_the_current_cell_can_be_read_by_its_instance():
    namespace = Namespace()
    with namespace.as_main():
        cell(namespace, "x = 1")
        cell(namespace, "y = 2\n\ny")
        cell(namespace, "z = 3", filename="Cell In[3]")
    assert read_cell(os.getpid(), "<cell 2>") == []
    assert read_cell(os.getpid(), "Cell In[3]") == ["z = 3"]


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
    assert "raysm/features" not in outcome.error.traceback
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


class Notebook:
    """A namespace, and what it displayed."""

    def __init__(self):
        self.displays = []
        self.namespace = Namespace(self.displays.append)

    def run(self, source, filename="Cell In[7]"):
        request = CallRequest(kind=CELL, name="a cell", filename=filename)
        with self.namespace.as_main():
            try:
                return self.namespace.execute(request, source.encode())
            except BaseException as error:
                return outcome_from_error(error)

    def shown(self, source):
        outcome = self.run(source)
        assert outcome.error is None, outcome.error
        return dict(outcome.shown)

    def displayed(self, source):
        del self.displays[:]
        assert self.run(source).error is None
        return [each["data"] for each in self.displays]


@pytest.fixture
def notebook():
    one = Notebook()
    yield one
    one.namespace.close()


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("1 + 1\n2 + 2", "4"),
        ("2 + 2;", None),
        ("x = 2", None),
        ("import asyncio\nawait asyncio.sleep(0, 7)", "7"),
        ("lines = !echo hello\nlines[0]", "'hello'"),
        ("%%time\n6 * 7", "42"),
        ("get_ipython().execution_count", "2"),
        ("", None),
    ],
)
def test_a_cell_is_that_of_a_notebook(notebook, source, text):
    assert notebook.shown(source).get("text/plain") == text


def test_magics_and_commands_print(notebook, capsys):
    notebook.shown("%timeit -n 1 -r 1 1 + 1")
    notebook.shown("!echo from the shell")
    printed = capsys.readouterr().out
    assert "loop (mean" in printed
    assert "from the shell" in printed


def test_help_is_shown_and_earlier_values_are_there(notebook):
    (help,) = notebook.displayed("len?")
    assert "Return the number of items" in help["text/plain"]
    notebook.shown("6 * 7")
    assert notebook.shown("_ + 1")["text/plain"] == "43"
    assert notebook.shown("Out[2] + 2")["text/plain"] == "44"


def test_values_and_displays_have_every_form_that_they_have(notebook):
    notebook.shown(
        "class Table:\n    def _repr_html_(self): return '<table/>'\n"
        "    def _repr_png_(self): return b'\\x89PNG', {'width': 3}\n    def __repr__(self): return 'a table'"
    )
    forms = {"text/plain": "a table", "text/html": "<table/>", "image/png": "iVBORw=="}
    outcome = notebook.run("Table()")
    assert (dict(outcome.shown), dict(outcome.metadata)) == (forms, {"image/png": {"width": 3}})
    assert notebook.displayed("display(Table()); 3") == [forms]


def test_a_display_is_updated_and_cleared(notebook):
    notebook.run("one = display('a', display_id=True)\none.update('b')")
    first, second = notebook.displays
    assert (first["update"], second["update"]) == (False, True)
    assert first["transient"] == second["transient"]
    notebook.run("from IPython.display import clear_output\nclear_output(wait=True)")
    assert notebook.displays[-1] == {"clear": True}


def test_a_display_that_is_too_large_is_named(notebook):
    (display,) = notebook.displayed(
        f"from IPython.display import HTML\ndisplay(HTML('x' * {MAX_DISPLAY_BYTES + 1}), metadata={{}})"
    )
    assert display == {"text/plain": "<a display of 32 MB, which is too large to send>"}


def test_a_figure_is_a_picture(notebook):
    pytest.importorskip("matplotlib")
    shown = notebook.displayed(
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    )
    assert shown[0]["image/png"].startswith("iVBOR")


TRACEBACKS = [
    (
        "\nx = = 1",
        '  File "Cell In[7]", line 2\n    x = = 1\n        ^\nSyntaxError: invalid syntax',
    ),
    (
        "\ndef f():\n    return 1 / 0\n\nf()",
        '  File "Cell In[7]", line 5, in <module>\n    f()\n'
        '  File "Cell In[7]", line 3, in f\n    return 1 / 0\n           ~~^~~\nZeroDivisionError: division by zero',
    ),
    (
        "%timeit -n 1 -r 1 1 / 0",
        '  File "Cell In[7]", line 1, in <module>\n    %timeit -n 1 -r 1 1 / 0',
    ),
    (
        "async def f():\n    1 / 0\nawait f()",
        '  File "Cell In[7]", line 3, in <module>\n    await f()',
    ),
]


@pytest.mark.parametrize(("source", "text"), TRACEBACKS)
def test_a_failure_shows_the_users_lines_alone(notebook, source, text):
    # Python 3.13 also marks the call in a line that has nothing else.
    told = notebook.run(source).error.traceback.replace("    f()\n    ~^^\n", "    f()\n")
    assert text in told
    assert "IPython" not in told
    assert "ast.py" not in told


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("input('name? ')", r"input() does not work in a session"),
        ("import getpass\ngetpass.getpass()", r"input() does not work in a session"),
        ("breakpoint()", r"input() does not work in a session, nor a debugger"),
        ("%nosuch", "Line magic function `%nosuch` not found"),
    ],
)
def test_what_a_session_cannot_do_is_one_line(notebook, source, message):
    error = notebook.run(source).error
    assert message in error.message
    assert error.traceback == ""


def test_exit_ends_the_cell_alone(notebook):
    assert notebook.run("exit()").error is None
    assert notebook.run("exit(3)").error.type == "SystemExit"
    assert notebook.shown("1")["text/plain"] == "1"


def test_an_interrupted_await_does_not_go_on_in_a_later_cell(notebook):
    interrupted = notebook.run(
        "import asyncio\nx = 1\nasyncio.get_running_loop().call_later(0.01, lambda: 1 / 0 if x is None else exit(3))\n"
        "await asyncio.sleep(0.2)\nx = 2"
    )
    assert interrupted.error.type == "SystemExit"
    assert notebook.shown("await asyncio.sleep(0.3)\nx")["text/plain"] == "1"
