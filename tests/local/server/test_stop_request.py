"""A request to stop, also from a signal handler that interrupts the waiting thread at any point."""

import subprocess
import sys

from raysm.local.server.stop_request import StopRequest

SIGNALS = """
import signal, time
from raysm.local.server.stop_request import StopRequest

stop = StopRequest()
handled = 0

def handle(number, frame):
    global handled
    handled += 1
    stop.set()

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
until_s = time.monotonic() + 60
while handled < 20_000 and time.monotonic() < until_s:
    stop.wait(0.0001)
signal.setitimer(signal.ITIMER_REAL, 0)
print("ended")
"""


def test_signals_at_any_point_of_a_wait_never_block_it():
    command = [sys.executable, "-c", SIGNALS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.stdout == "ended\n", ended.stderr


def test_wait_says_whether_the_stop_was_requested():
    stop = StopRequest()
    assert not stop.wait(0.01)
    stop.set()
    assert stop.wait(60)
