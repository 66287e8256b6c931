"""A client whose clock is set an hour on, and two back, in the midst of its calls: as laptops do that wake up."""

import os
import subprocess
import sys
import time

import pytest

from tests.support.session_process import ROOT
from tests.support.sessions import served
from tests.support.shifted_clock import ShiftedClock, why_not
from tests.support.waiting import until

CLIENT = """
import json, sys, time
from tests.support.stub_job import near

def work(folder):
    import pathlib, time
    ran = pathlib.Path(folder) / "ran"
    with ran.open("a") as file:
        file.write("x")
    while not (pathlib.Path(folder) / "go").exists():
        time.sleep(0.01)
    return "the result"

session = near({folder!r}, {port})
call = session.submit(work, {folder!r})
print(time.time(), flush=True)
sys.stdin.readline()
print(time.time(), flush=True)
print(call.result(timeout=120), session.run(abs, -1), flush=True)
sys.stdin.readline()
print(time.time(), flush=True)
print(session.run(abs, -2), flush=True)
session.detach()
"""

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def asked(client, word=""):
    client.stdin.write(f"{word}\n")
    client.stdin.flush()


def test_nothing_is_lost_or_done_twice_and_the_client_stays_attached(tmp_path):
    clock = ShiftedClock(tmp_path)
    with served(tmp_path / "served") as server:
        code = CLIENT.format(folder=str(tmp_path), port=server.port)
        client = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | clock.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert abs(float(client.stdout.readline()) - time.time()) < 600
            until((tmp_path / "ran").exists)
            clock.jump(3600)
            asked(client)
            # The jump was seen there: else this test would show nothing.
            assert float(client.stdout.readline()) - time.time() > 3000
            (tmp_path / "go").touch()
            assert client.stdout.readline() == "the result 1\n"
            assert server.host.state().clients == 1
            clock.jump(-3600)
            asked(client)
            assert float(client.stdout.readline()) - time.time() < -3000
            assert client.stdout.readline() == "2\n"
        finally:
            client.communicate(timeout=60)
        assert client.returncode == 0
        assert (tmp_path / "ran").read_text() == "x"
        assert len(server.remote.executed) == 3
        assert server.why is None
