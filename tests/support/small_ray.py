"""A Ray of one node of two CPUs on this machine, started as an instance starts its own."""

import contextlib
import socket
import subprocess
import sys
import time

from raysm.core.protocol.names import LABEL_HOST
from raysm.instance import die_with_parent, ray_start
from raysm.instance.gcs_state import await_first
from tests.support.bootstraps import free_ports

COMES_S = 60.0
ENDS_S = 60.0


@contextlib.contextmanager
def small_ray(folder, host="algo-1"):
    """Yield the address of a Ray below ``folder`` whose node is the instance ``host``; it ends with this process."""
    gcs, dashboard = free_ports(2)
    command = (sys.executable, "-P", "-m", ray_start.__name__, f"{ray_start.WORKERS}0")
    flags = {
        "num-cpus": 2,
        "object-store-memory": 256 << 20,
        "port": gcs,
        "dashboard-host": "127.0.0.1",
        "dashboard-port": dashboard,
        "dashboard-agent-listen-port": 0,
        "node-ip-address": "127.0.0.1",
        "labels": f"{LABEL_HOST}={host}",
        "temp-dir": folder,
        "include-log-monitor": "false",
    }
    arguments = (
        "start",
        "--block",
        "--head",
        *(f"--{name}={value}" for name, value in flags.items()),
    )
    log = folder.with_suffix(".log")
    with log.open("wb") as output:
        node = subprocess.Popen(
            die_with_parent.wrap([*command, *arguments, "--disable-usage-stats"]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        deadline_s = time.monotonic() + COMES_S
        # Not by Ray's client, which tries for five seconds and then says so.
        while not _listens(gcs):
            assert node.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.02)
        await_first(f"127.0.0.1:{gcs}", COMES_S)
        yield f"127.0.0.1:{gcs}"
    finally:
        node.terminate()
        node.wait(ENDS_S)


def _listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
