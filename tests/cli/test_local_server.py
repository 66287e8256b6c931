import subprocess
import sys

from raysm.cli.local_server import _down
from raysm.contract.home import ServerRecord


def test_a_server_that_ended_by_itself_meanwhile_need_not_be_ended():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(30)
    assert _down(ServerRecord(pid=ended.pid, port=1, started_s=0.0, version="1")) is False
