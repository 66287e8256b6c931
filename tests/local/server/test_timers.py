"""What is to happen later happens in the order of its moments, and one that fails keeps no other waiting."""

import threading

from raysm.local.server.timers import Timers

SOON_S = 60.0


def test_moments_come_in_their_order_whatever_the_order_in_which_they_were_asked_for():
    timers, seen, over = Timers(), [], threading.Event()
    timers.after(0.2, over.set)
    timers.after(0.1, lambda: seen.append("second"))
    timers.after(0.0, lambda: seen.append("first"))
    assert over.wait(SOON_S)
    assert seen == ["first", "second"]
    timers.close()


def test_what_fails_is_told_and_keeps_nobody_waiting(caplog):
    timers, over = Timers(), threading.Event()
    timers.after(0.0, lambda: 1 / 0)
    timers.after(0.0, over.set)
    assert over.wait(SOON_S)
    timers.close()
    assert "division by zero" in caplog.text


def test_after_the_end_nothing_happens_any_more():
    timers, seen = Timers(), []
    timers.after(0.05, lambda: seen.append("late"))
    timers.close()
    timers.after(0.0, lambda: seen.append("later"))
    assert seen == []


def test_none_that_is_asked_for_needs_no_thread():
    before = threading.active_count()
    Timers().close()
    assert threading.active_count() == before
