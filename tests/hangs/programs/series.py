"""Run programs that hang one after the other, each in a new child of a script, until ``tests.hangs`` ends it.

A child is cheap: torch and Ray are imported once. The script itself hides from ``raysm stacks``, so
a child looks like a script of its own.
"""

import os
import pathlib
import signal
import socket
import sys
import time

from raysm.core.protocol import stack_signal

RANK = int(os.environ.get("RANK", "0"))
RANKS = int(os.environ.get("WORLD_SIZE", "1"))
POLL_S = 0.2


def run_in_children(run):
    """Call ``run(name)`` in a child for each name in the arguments, after the folder for files of the series."""
    folder, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    if (found := stack_signal.find_file(os.getpid())) is not None:
        os.close(found[0])
    for number, name in enumerate(names):
        child = os.fork()
        if child == 0:
            os.setsid()
            stack_signal.register("script")
            os.environ["MASTER_PORT"] = find_port(folder / f"port-{number}")
            os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
            run(name)
            return
        while not (folder / f"end-{number}").exists():
            time.sleep(POLL_S)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        (folder / f"ended-{number}-{RANK}").touch()
        while not all((folder / f"ended-{number}-{rank}").exists() for rank in range(RANKS)):
            time.sleep(POLL_S)


def find_port(path):
    """Return a free port, which rank 0 chooses and writes into a file for the others."""
    if RANK == 0:
        with socket.create_server(("127.0.0.1", 0)) as server:
            new = path.with_suffix(".new")
            new.write_text(str(server.getsockname()[1]))
        new.rename(path)
    while not path.exists():
        time.sleep(POLL_S)
    return path.read_text()
