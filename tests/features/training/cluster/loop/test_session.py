"""Observers of a training's session: each one ends once, in the process that attached it."""

import subprocess
import sys

from raysm.features.training.cluster.loop import session as sessions

SCRIPT = """
import os, sys
from raysm.features.training.cluster.loop import session as sessions

class Speaking(sessions.Observer):
    def on_end(self):
        print("ended", flush=True)

sessions.current().attach(Speaking())
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
"""


class Counting(sessions.Observer):
    def __init__(self):
        self.ends = 0

    def on_end(self):
        self.ends += 1


def test_observers_end_once_with_their_session():
    session = sessions.begin()
    observer = Counting()
    session.attach(observer)
    sessions.end()
    for end_observer in session.ends:
        end_observer()
    assert observer.ends == 1


def test_observer_ends_at_the_exit_of_a_script_but_not_at_that_of_a_forked_process():
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=True
    )
    assert ended.stdout == "ended\n"
