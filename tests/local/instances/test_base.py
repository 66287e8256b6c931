"""What an instance does by what its kind promises."""

import socket
from concurrent.futures import Future

import pytest

from raysm.errors import ForeignListener
from raysm.local.instances.base import Instance, open_to_all
from tests.support.another_user import needs_two_users, thief


class Plain(Instance):
    def __init__(self):
        self.host, self.address, self.pid, self.exited = "algo-1", "127.0.0.1", 1, Future()
        self.signals = []

    def signal(self, number):
        self.signals.append(number)

    def enter(self, command, *, stdin, stdout):
        raise NotImplementedError

    def end(self):
        self.exited.set_result(137)


def test_every_folder_below_the_base_is_opened_and_neither_the_base_nor_a_file(tmp_path):
    (tmp_path / "model" / "deep").mkdir(parents=True)
    (tmp_path / "model" / "file").touch(mode=0o600)
    tmp_path.chmod(0o700)
    open_to_all(tmp_path)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path, *tmp_path.rglob("*"))}
    assert modes == {tmp_path.name: 0o700, "model": 0o777, "deep": 0o777, "file": 0o600}


@needs_two_users
def test_a_port_that_another_user_has_is_not_taken_for_the_instances():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with thief(port) as other:
        other.await_port(port)
        with pytest.raises(ForeignListener):
            Plain().connect(port)
        assert other.end() == ""
