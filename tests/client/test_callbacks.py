"""Callbacks of a job, without a job: how to wait for its end is a function."""

import threading

from raysm.client.job.log import Callbacks
from raysm.errors import JobNotFound, ServiceError


def called(wait, count=0):
    """Add ``count`` callbacks before the wait begins; return their order, and what tells that all have been called."""
    added, order, last = threading.Event(), [], threading.Event()

    def wait_when_added():
        assert added.wait(60)
        wait()

    callbacks = Callbacks("task-1", wait=wait_when_added, pause_s=0)
    for number in range(count):
        callbacks.add(lambda number=number: order.append(number))
    callbacks.add(last.set)
    added.set()
    return order, last


def test_all_are_called_in_their_order_when_the_job_ends_and_not_before():
    ended = threading.Event()
    order, last = called(ended.wait, 3)
    assert not last.is_set()
    ended.set()
    assert last.wait(60)
    assert order == [0, 1, 2]


def test_a_service_that_is_away_is_asked_again_and_each_callback_called_once(caplog):
    answers = iter([ServiceError("away"), ServiceError("still away")])

    def wait():
        error = next(answers, None)
        if error is not None:
            raise error

    order, last = called(wait, 1)
    assert last.wait(60)
    assert order == [0]
    assert "the job task-1 cannot be watched just now: still away" in caplog.text


def test_a_job_that_was_deleted_is_not_waited_for_again(caplog):
    asked = []

    def wait():
        asked.append(1)
        raise JobNotFound("there is no job task-1")

    _, last = called(wait)
    assert last.wait(60)
    assert asked == [1]
    assert "the job task-1 is gone" in caplog.text


def test_one_that_raises_is_logged_and_hinders_no_other(caplog):
    ended, last = threading.Event(), threading.Event()
    callbacks = Callbacks("task-1", wait=ended.wait, pause_s=0)
    callbacks.add(lambda: 1 / 0)
    callbacks.add(last.set)
    ended.set()
    assert last.wait(60)
    assert "a callback of the job task-1 raised" in caplog.text
