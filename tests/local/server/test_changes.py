"""Word of what changes of a job."""

import threading

from raysm.local.server.changes import Changes

WAIT_S = 60.0


def test_who_waits_hears_of_the_next_change_and_of_one_that_he_missed_at_once():
    changes, heard = Changes(), []
    waiting = threading.Thread(target=lambda: heard.append(changes.wait(0, WAIT_S)))
    waiting.start()
    changes.add()
    waiting.join(WAIT_S)
    assert heard == [1]
    assert changes.wait(0, WAIT_S) == 1


def test_nothing_new_is_said_as_such_after_the_time():
    assert Changes().wait(0, 0.01) == 0


def test_who_counts_by_another_server_is_answered_at_once():
    changes = Changes()
    changes.add()
    assert changes.wait(7, WAIT_S) == 1
