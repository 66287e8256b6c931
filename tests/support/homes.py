"""An embedded SageMaker with a home of its own, which is ended with all that it started."""

import contextlib
import os
import signal

import psutil

from raysm.core.client.targets.local import find_server
from raysm.core.protocol.home import ServerRecord
from tests.support.waiting import until


@contextlib.contextmanager
def serving(folder):
    """Yield ``folder`` as a home in which a server may be started; end it, and check that nothing of it is left."""
    try:
        yield folder
    finally:
        end(folder)


def end(folder, number=signal.SIGTERM, within_s=90.0):
    """End the server of the home ``folder``, and wait until neither it nor anything that it started is there."""
    record = ServerRecord.read(folder)
    if record is None or not psutil.pid_exists(record.pid):
        return
    server = psutil.Process(record.pid)
    everything = [server, *server.children(recursive=True)]
    os.kill(record.pid, number)
    gone, alive = psutil.wait_procs(everything, timeout=within_s)
    assert not alive, f"still there {within_s:.0f} s after the server's end: {alive}"
    until(lambda: find_server(folder) is None, within_s)


@contextlib.contextmanager
def with_variable(name, value):
    """Let an environment variable of this process have ``value`` during the block."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


@contextlib.contextmanager
def in_home(folder):
    """Let ``folder`` be raysm's home, for what asks the environment for it."""
    with with_variable("RAYSM_HOME", str(folder)):
        yield folder
