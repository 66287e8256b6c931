"""Where a card is shown, by what this process belongs to."""

import subprocess
import sys

import pytest

from raysm.errors import InvalidRequest
from raysm.views.card.live_card import NOTEBOOKS, JupyterOutput, LiveCard, MarimoOutput, Output, output_here

SOON_S = 60


class Counting(LiveCard):
    """Draws nothing, until it is stopped."""

    def __init__(self, title, output):
        super().__init__(title, output)
        self.ended = False
        self._begin()

    def _run(self):
        self.ended = self._stopping.wait(SOON_S)


@pytest.fixture
def card():
    card = Counting("digits", Output())
    yield card
    card.stop()


def test_it_is_live_until_it_is_stopped_and_its_thread_bears_its_name(card):
    assert repr(card) == "<card of digits, live>"
    assert card._thread.name == "raysm card of digits"
    assert not card.wait(0)
    card.stop()
    assert card.ended
    assert repr(card) == "<card of digits, ended>"


def test_who_waits_is_told_when_it_has_ended(card):
    card._stopping.set()
    assert card.wait(SOON_S)


WITHIN_S = 120


def test_where_there_is_no_notebook_it_is_said_what_shows_a_job_in_a_terminal():
    assert [kind.is_here() for kind in NOTEBOOKS] == [False, False]
    with pytest.raises(InvalidRequest, match=r"this is not a notebook: in a terminal use job.logs\(follow=True\)"):
        output_here()


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
