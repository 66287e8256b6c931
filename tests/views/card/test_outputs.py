"""Where a card is shown, by what this process belongs to."""

import subprocess
import sys

import pytest

from raysm.errors import InvalidRequest
from raysm.views.card.live_card import NOTEBOOKS, JupyterOutput, MarimoOutput, Output, output_here

WITHIN_S = 120


def test_where_there_is_no_notebook_it_is_said_what_shows_a_job_in_a_terminal():
    assert [kind.is_here() for kind in NOTEBOOKS] == [False, False]
    with pytest.raises(InvalidRequest, match=r"this is not a notebook: in a terminal use job.logs\(follow=True\)"):
        output_here()


def test_to_find_that_out_nothing_is_imported():
    code = "import sys; from raysm.views.card.live_card import NOTEBOOKS; NOTEBOOKS[0].is_here(); "
    code += "print('marimo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WITHIN_S)
    assert done.stdout == "False\n", done.stderr


def test_cards_are_drawn_in_a_thread_that_holds_no_kernel_up():
    drawn = []
    thread = Output().thread(lambda: drawn.append(1), "raysm card digits")
    assert (thread.daemon, thread.name) == (True, "raysm card digits")
    thread.start()
    thread.join(WITHIN_S)
    assert drawn == [1]
    assert Output().is_gone is False


IN_IPYTHON = """
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance()
from raysm.views.card.live_card import output_here
output = output_here()
output.show("<b>first</b>", "first")
output.show("<b>second</b>", "second")
print(type(output).__name__)
"""


def test_in_ipython_it_is_a_display_that_is_replaced():
    pytest.importorskip("IPython")
    done = subprocess.run([sys.executable, "-c", IN_IPYTHON], capture_output=True, text=True, timeout=WITHIN_S)
    # A shell of a terminal shows the words, one after the other.
    assert done.stdout.split() == ["first", "second", JupyterOutput.__name__], done.stderr


def test_marimo_is_asked_first_since_ipython_is_not_to_be_found_in_it():
    assert NOTEBOOKS[0] is MarimoOutput
