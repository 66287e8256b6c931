"""A place for live cards that keeps them, for tests that wait until something is shown."""

import threading
import time

from raysm.core.client.views.live_card import Output

WITHIN_S = 60


class Screen(Output):
    """An output that keeps its cards, with when they came."""

    def __init__(self):
        self.cards, self.times = [], []
        self._changed = threading.Condition()

    def show(self, html, text):
        with self._changed:
            self.cards.append(html)
            self.times.append(time.monotonic())
            self._changed.notify_all()

    def wait_for(self, text):
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.cards[-1], WITHIN_S), self.cards[-1]

    def wait_for_another(self, number):
        """Wait until more cards than ``number`` have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.cards) > number, WITHIN_S), self.cards[
                -1
            ]
