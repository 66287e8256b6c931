"""What a caller waits for, told after some seconds of silence."""

import queue
import threading
from types import SimpleNamespace

import pytest

from raysm.client.job.description import SecondaryStatus, Status
from raysm.client.logs.pending import JobWait, Silence, reasons_told
from raysm.contract.events import State, line
from raysm.errors import ServiceError

DEADLINE_S = 300.0


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
    job = Job(ServiceError("away"), pending("a"), pending("a"), pending("b"))
    with reasons_told(job, said.put, every_s=0.001):
        assert said.get(timeout=DEADLINE_S) == "digits-1 is Pending: a"
        assert said.get(timeout=DEADLINE_S) == "digits-1 is Pending: b"
    assert said.empty()


@pytest.mark.parametrize(
    ("secondary", "lines", "told"),
    [
        (SecondaryStatus.STARTING, [], "waiting: the service starts the instances"),
        (SecondaryStatus.DOWNLOADING, [], "waiting: the instances download the inputs"),
        (SecondaryStatus.TRAINING, [], "waiting: the instances start Python and Ray"),
        (
            SecondaryStatus.TRAINING,
            ["raysm: looking for packages that this image lacks: torch"],
            "waiting: pip installs packages that the image lacks",
        ),
        (
            SecondaryStatus.TRAINING,
            [line(State(name="joined", count=1, total=2))],
            "waiting: 1 of 2 instances have joined, and the others still start",
        ),
        (
            SecondaryStatus.TRAINING,
            [line(State(name="formed", count=2, total=2))],
            "waiting: the workload has started (its imports may take a while), and has printed nothing yet",
        ),
        (SecondaryStatus.TRAINING, [line(State(name="formed")), "epoch 1"], ""),
        (SecondaryStatus.UPLOADING, ["epoch 1"], "waiting: the service stores the results"),
    ],
)
def test_what_is_waited_for_follows_from_the_status_and_the_log(secondary, lines, told):
    waits = JobWait(Job(how(secondary)))
    for text in lines:
        waits.on_line(text)
    assert waits.reason() == told


def test_what_is_shown_begins_the_silence_anew():
    said = queue.Queue()
    with Silence(said.put, lambda: "waiting", after_s=3600) as silence:
        silence.reset()
    assert said.empty()
    with Silence(said.put, lambda: "waiting", after_s=0.001):
        assert said.get(timeout=DEADLINE_S) == "waiting"
