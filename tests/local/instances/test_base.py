"""What an instance does by what its kind promises."""

import signal
import socket
from concurrent.futures import Future

import pytest

from raysm.errors import ForeignListener
from raysm.local.instances.base import Instance, Site, open_to_all
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


class Empty(Site):
    interface = "lo"
    closed = 0

    def base_inside(self, base):
        return base

    def start(self, specs):
        return []

    def close(self):
        self.closed += 1


def test_to_kill_an_instance_is_to_kill_its_main_process():
    instance = Plain()
    instance.kill()
    assert instance.signals == [signal.SIGKILL]


def test_to_wait_for_an_instance_is_to_get_its_exit_code_or_a_timeout():
    instance = Plain()
    with pytest.raises(TimeoutError):
        instance.wait(0.01)
    instance.end()
    assert instance.wait(0) == 137


def test_a_site_lacks_nothing_and_protects_unless_its_kind_says_otherwise_and_is_closed_in_the_end():
    assert Empty.missing() is None
    site = Empty.open("an image that it does not run")
    assert site.protects
    with pytest.raises(KeyError), site:
        raise KeyError
    assert site.closed == 1


def test_every_folder_below_the_base_is_opened_and_neither_the_base_nor_a_file(tmp_path):
    (tmp_path / "model" / "deep").mkdir(parents=True)
    (tmp_path / "model" / "file").touch(mode=0o600)
    tmp_path.chmod(0o700)
    open_to_all(tmp_path)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path, *tmp_path.rglob("*"))}
    assert modes == {tmp_path.name: 0o700, "model": 0o777, "deep": 0o777, "file": 0o600}


def test_a_port_of_an_instance_that_shares_this_machines_loopback_is_connected_to():
    with socket.create_server(("127.0.0.1", 0)) as server, Plain().connect(server.getsockname()[1]) as connection:
        assert connection.getpeername() == server.getsockname()


@needs_two_users
def test_a_port_that_another_user_has_is_not_taken_for_the_instances():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with thief(port) as other:
        other.await_port(port)
        with pytest.raises(ForeignListener):
            Plain().connect(port)
        assert other.end() == ""
