"""What all cards have that are drawn again in a thread."""

import pytest

from raysm.views.card.live_card import LiveCard, Output

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
