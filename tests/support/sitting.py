"""A command with somebody before its terminal: types keys, reads the screen, changes its size."""

import os
import pty
import select
import signal
import subprocess
import termios
import time

from tests.support.sagemaker_server import SOON_S

__all__ = ["Sitting"]


class Sitting:
    """A command of ours with somebody before its terminal."""

    def __init__(self, arguments, variables):
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(self.master, (30, 100))
        self.process = subprocess.Popen(
            arguments, stdin=slave, stdout=slave, stderr=slave, env=variables, start_new_session=True
        )
        os.close(slave)
        self.seen = b""

    def type(self, keys):
        os.write(self.master, keys)

    def until(self, text):
        """Read until ``text`` is on the screen; what stands before it is forgotten."""
        deadline_s = time.monotonic() + SOON_S
        while text not in self.seen:
            assert time.monotonic() < deadline_s, self.seen
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.master, 4096)
                except OSError:  # it has ended, and its terminal with it
                    raise AssertionError(self.seen) from None
        self.seen = self.seen.partition(text)[2]

    def type_until(self, keys, text):
        """Type ``keys`` again and again until ``text`` is on the screen."""
        deadline_s = time.monotonic() + SOON_S
        while text not in self.seen:
            assert time.monotonic() < deadline_s, self.seen
            self.type(keys)
            if select.select([self.master], [], [], 2)[0]:
                time.sleep(0.5)
                self.seen += os.read(self.master, 4096)
        self.seen = self.seen.partition(text)[2]

    def resize(self, rows, columns):
        termios.tcsetwinsize(self.master, (rows, columns))
        self.process.send_signal(signal.SIGWINCH)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)
