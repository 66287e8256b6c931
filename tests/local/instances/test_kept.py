"""The parent's end of a keeper, with a program of a few lines in the keeper's place."""

import textwrap

import pytest

from raysm.errors import RaysmError
from raysm.local.instances.kept import Keeper, KeptInstance, end_all

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


def test_an_operation_that_fails_names_the_instance_and_the_reason(keeper):
    with pytest.raises(RaysmError, match="^algo-1: no such program$"):
        keeper.call("fail")


def test_a_keeper_that_dies_is_lost_and_its_instance_counts_as_killed(keeper):
    with pytest.raises(RaysmError, match="its keeper ended during 'die'"):
        keeper.call("die")
    assert keeper.exited.result(90) == 137
    assert keeper.lost


def test_a_keeper_that_is_told_to_end_is_not_lost_and_may_be_told_again(keeper):
    keeper.end()
    keeper.end()
    keeper.signal(15)
    assert keeper.exited.result(90) == 137
    assert not keeper.lost
