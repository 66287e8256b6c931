"""A visit to a job that runs, through a tunnel: what the other end answers, or why it could not be asked."""

import contextlib
import socket
import threading

import pytest

from raysm.client.first_job.entering import ANSWER_BYTES, TOPIC, enter
from raysm.errors import ServiceError


class Door:
    """A tunnel that leads to a port of this machine."""

    def __init__(self, port):
        self.port = port

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


class Visited:
    """A job whose tunnels lead here, or are refused."""

    def __init__(self, port=0, error=None):
        self.local, self.error, self.asked = port, error, []

    def tunnel(self, port):
        self.asked.append(port)
        if self.error is not None:
            raise self.error
        return Door(self.local)


@contextlib.contextmanager
def answering(text):
    """Yield a port whose listener says ``text`` to the first who comes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            visitor, _ = server.accept()
            with visitor:
                visitor.sendall(text)

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join(60)


@pytest.mark.parametrize("text", [b"aws\n", b"a" * ANSWER_BYTES])
def test_what_the_other_end_says_is_the_observation(text):
    with answering(text) as port:
        job = Visited(port)
        said = enter(job, 7070)
    assert job.asked == [7070]
    assert (said.topic, said.host) == (TOPIC, "algo-1")
    assert said.values["reached"]
    assert said.values["answer"] == text.decode().strip()


def test_a_connection_that_ends_without_a_word_went_nowhere():
    with answering(b"") as port:
        assert enter(Visited(port), 7070).values == {"reached": False, "obstacle": "it answered nothing"}


def test_an_account_that_lets_nobody_in_is_an_observation_too():
    refusal = ServiceError("AccessDenied: sagemaker:UpdateTrainingJob", code="AccessDeniedException")
    assert enter(Visited(error=refusal), 7070).values == {"reached": False, "obstacle": str(refusal)}


def test_a_port_that_nobody_listens_at_is_an_observation_too():
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    assert not enter(Visited(closed), 7070).values["reached"]
