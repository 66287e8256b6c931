"""Cells are IPython: magics, displays, figures, awaiting, and failures that show the user's lines alone."""

import pytest

from raysm.contract.session import CELL, CallRequest
from raysm.workloads.session.outcomes import outcome_of_error
from raysm.workloads.session.shell import MAX_DISPLAY_BYTES, Namespace


class Notebook:
    """A namespace, and what it displayed."""

    def __init__(self):
        self.displays = []
        self.namespace = Namespace(self.displays.append)

    def run(self, source, filename="Cell In[7]"):
        request = CallRequest(kind=CELL, name="a cell", filename=filename)
        with self.namespace.as_main():
            try:
                return self.namespace.do(request, source.encode())
            except BaseException as error:
                return outcome_of_error(error)

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
    shown = notebook.displayed("%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    assert shown[0]["image/png"].startswith("iVBOR")


TRACEBACKS = [
    ("\nx = = 1", '  File "Cell In[7]", line 2\n    x = = 1\n        ^\nSyntaxError: invalid syntax'),
    (
        "\ndef f():\n    return 1 / 0\n\nf()",
        '  File "Cell In[7]", line 5, in <module>\n    f()\n'
        '  File "Cell In[7]", line 3, in f\n    return 1 / 0\n           ~~^~~\nZeroDivisionError: division by zero',
    ),
    ("%timeit -n 1 -r 1 1 / 0", '  File "Cell In[7]", line 1, in <module>\n    %timeit -n 1 -r 1 1 / 0'),
    ("async def f():\n    1 / 0\nawait f()", '  File "Cell In[7]", line 3, in <module>\n    await f()'),
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
