"""Each end of a Unix socket checks which user is at the other end."""

import os
import socket
import threading

import pytest

from raysm.core.protocol import own_socket
from raysm.errors import ForeignListener
from tests.support.strangers import NOBODY, needs_two_users, running_as_another_user

LISTEN = """
(path,) = values
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
print("listening", flush=True)
sys.stdin.read()
listener.settimeout(10)
connection, _ = listener.accept()
connection.settimeout(10)
assert connection.recv(1) == b""
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A path in a folder where all may write, short enough for a socket."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o777)
    return "s"


@pytest.fixture
def listener(path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        yield listener


@pytest.mark.parametrize("timeout_s", [5.0, None])
def test_both_ends_of_a_connection_know_the_user_of_the_other_one(path, listener, timeout_s):
    with own_socket.connect(path, timeout_s) as connection, listener.accept()[0] as accepted:
        assert own_socket.peer_user(connection) == own_socket.peer_user(accepted) == os.geteuid()


def test_this_user_and_root_are_trusted():
    assert own_socket.is_trusted(os.geteuid())
    assert own_socket.is_trusted(0)
    assert not own_socket.is_trusted(NOBODY)


@needs_two_users
def test_a_process_of_another_user_that_listens_at_the_path_is_sent_nothing(path):
    with running_as_another_user(LISTEN, path) as said:
        assert said == "listening"
        with pytest.raises(ForeignListener, match=rf"uid {NOBODY}\)"):
            own_socket.connect(path, 5.0)


def test_a_full_queue_is_waited_for(path, listener):
    with own_socket.connect(path, 5.0):
        with pytest.raises(TimeoutError):
            own_socket.connect(path, 0.1)
        timer = threading.Timer(0.2, lambda: listener.accept()[0].close())
        timer.start()
        own_socket.connect(path, 60.0).close()
        timer.join()


def test_a_path_at_which_nothing_listens_is_an_ordinary_error(path):
    with pytest.raises(FileNotFoundError):
        own_socket.connect(path, 1.0)
