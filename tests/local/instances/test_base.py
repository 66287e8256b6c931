"""What an instance does by what its kind promises."""

import socket
import textwrap
from concurrent.futures import Future

import pytest

from raysm.errors import ForeignListener, RaysmError
from raysm.local.instances.base import Instance, open_to_all
from raysm.local.instances.kept import Keeper, KeptInstance, end_all
from tests.support.another_user import needs_two_users, thief

PROGRAM = """
import json, os, sys

def report(**message):
    os.write(int(sys.argv[1]), json.dumps(message).encode() + b"\\n")

for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "start":
        report(event="started", pid=42)
    elif request["op"] == "fail":
        report(event="error", message="no such program")
    elif request["op"] == "signal":
        report(event="exited", code=128 + request["number"])
    elif request["op"] == "die":
        os._exit(3)
"""


@pytest.fixture
def keeper(tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    keeper = Keeper("algo-1", script=tmp_path / "program.py")
    yield keeper
    end_all([keeper])


def test_an_instance_has_the_pid_and_the_exit_that_its_keeper_reports(keeper):
    cleaned = []
    instance = KeptInstance(keeper, "algo-1", "10.0.0.1", lambda: cleaned.append(1))
    instance.start(command=["x"])
    assert instance.pid == 42
    assert cleaned == []
    instance.signal(15)
    assert instance.wait(90) == 143
    assert cleaned == [1]


def test_a_keeper_that_dies_is_lost_and_its_instance_counts_as_killed(keeper):
    with pytest.raises(RaysmError, match="its keeper ended during 'die'"):
        keeper.call("die")
    assert keeper.exited.result(90) == 137
    assert keeper.lost


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
