"""Why a job waits, told to whoever waits for it."""

import queue
import threading
from types import SimpleNamespace

from raysm.client.description import SecondaryStatus, Status
from raysm.client.pending import reasons_told
from raysm.errors import ServiceError

DEADLINE_S = 60.0


def how(secondary, message="", status=Status.IN_PROGRESS):
    return SimpleNamespace(secondary=secondary, message=message, status=status)


class Job:
    """Answers each look with the next of what is given, then with the last of it."""

    name = "digits-1"

    def __init__(self, *answers):
        self._answers = list(answers)
        self.is_exhausted = threading.Event()

    def describe(self):
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if len(self._answers) == 1:
            self.is_exhausted.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


def pending(message):
    return how(SecondaryStatus.PENDING, message)


def test_each_reason_is_told_once_and_a_look_that_fails_is_passed_over():
    said = queue.Queue()
    job = Job(how(SecondaryStatus.STARTING), ServiceError("away"), pending("a"), pending("a"), pending("b"))
    with reasons_told(job, said.put, every_s=0.001):
        assert said.get(timeout=DEADLINE_S) == "digits-1 is Pending: a"
        assert said.get(timeout=DEADLINE_S) == "digits-1 is Pending: b"
    assert said.empty()


def test_of_a_job_that_runs_nothing_is_said_and_nothing_asked_any_more():
    said = []
    job = Job(how(SecondaryStatus.TRAINING), pending("late"))
    with reasons_told(job, said.append, every_s=0.001):
        assert job.is_exhausted.wait(DEADLINE_S)
    assert said == []


def test_a_start_that_is_quick_asks_nothing():
    job = Job(pending("a"))
    with reasons_told(job, print):
        pass
    assert not job.is_exhausted.is_set()
