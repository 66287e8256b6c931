"""The bootstrap with Ray itself: two instances on this machine, in one test of the whole."""

import http.client
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from raysm.instance.children import descendants
from tests.support.bootstraps import Cluster, request
from tests.support.jobs import NOTICES_LOSS_SOON

DRIVER = """
import json, os, pathlib, time
import ray
from ray.job_submission import JobSubmissionClient
ray.init(log_to_driver=False)

@ray.remote(num_cpus=1)
def where():
    # Else Ray's clients in a task find another Ray of the machine, or none.
    assert os.environ["RAY_ADDRESS"] == ray.get_runtime_context().gcs_address
    return os.environ["SM_CURRENT_HOST"], os.environ["SAGEMAKER_BASE_DIR"]

@ray.remote(num_cpus=1)
def states():
    from ray.util.state import list_nodes
    # The new raylet may have joined before the GCS has noticed the end of the old one.
    until = time.monotonic() + 180
    while True:
        found = [node.state for node in list_nodes(timeout=180)]
        if "DEAD" in found or time.monotonic() > until:
            return found
        time.sleep(.2)

on = lambda host, task: task.options(resources={f"host:{host}": 0.001})
nodes = sorted((node["Labels"]["raysm.io/host"], node["Resources"]["CPU"]) for node in ray.nodes())
print("NODES", json.dumps(nodes), flush=True)
print("TASKS", json.dumps([ray.get(on(host, where).remote()) for host in ("algo-1", "algo-2")]), flush=True)
print("user code runs", flush=True)
while not pathlib.Path("go").exists(): time.sleep(.05)
print("STATES", sorted(ray.get(on("algo-2", states).remote())), flush=True)
print("JOBS", JobSubmissionClient().list_jobs()[0].status.value, flush=True)
while pathlib.Path("go").exists(): time.sleep(.05)
"""


def printed(cluster, word):
    return next(
        line[len(word) + 1 :].strip() for line in cluster.lines["algo-1"] if line.startswith(word)
    )


def listening(pids):
    """Return the TCP ports that these processes listen on, and the addresses, read from /proc alone."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(link))
            except OSError:
                continue
            if found:
                inodes.add(found[1])
    ports, addresses = set(), set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, _, port = fields[1].rpartition(":")
                ports.add(int(port, 16))
                addresses.add(address)
    return ports, addresses


def http_status(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/version", timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except (OSError, http.client.HTTPException):
        return None


def below(cluster):
    return [pid for each in cluster.processes.values() for pid in descendants(each.pid)]


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.long
def test_two_instances_form_one_cluster_survive_a_raylet_and_leave_nothing(tmp_path):
    with Cluster(
        tmp_path, request(2), driver=DRIVER, fake=False, variables=NOTICES_LOSS_SOON
    ) as cluster:
        cluster.start().wait_for("user code runs", 180)
        # The dashboard and its agents start at the first request.
        agents = (b"dashboard/dashboard.py", b"dashboard/agent.py")
        started = {pid: read(Path(f"/proc/{pid}/cmdline")) for pid in below(cluster)}
        assert not [
            pid
            for pid, line in started.items()
            if any(name in line for name in agents) and b"-S" not in line
        ]
        assert printed(cluster, "NODES") == '[["algo-1", 1.0], ["algo-2", 1.0]]'
        bases = [[host, str(cluster.base(host))] for host in cluster.hosts]
        assert printed(cluster, "TASKS") == str(bases).replace("'", '"')

        raylet = next(
            pid
            for pid in descendants(cluster.processes["algo-2"].pid)
            if read(Path(f"/proc/{pid}/cmdline")).split(b"\0")[0].endswith(b"raylet/raylet")
        )
        os.kill(raylet, signal.SIGKILL)
        cluster.wait_for('"rejoined"')
        go = cluster.base("algo-1") / "input/data/raysm/source/go"
        go.touch()
        # Ray's own clients start the dashboard, also in a task.
        cluster.wait_for("JOBS", 180)
        assert printed(cluster, "STATES") == "['ALIVE', 'ALIVE', 'DEAD']"
        assert printed(cluster, "JOBS") == "RUNNING"

        processes = below(cluster)
        ports, addresses = listening(processes)
        assert len(ports) >= 8
        # 127.0.0.1, also as IPv6 sockets have it: other machines reach nothing of instances that
        # share loopback.
        assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}
        assert not ports & {44217, 44227, 10001}
        assert {http_status(port) for port in ports} == {401, None}
        go.unlink()
        assert cluster.wait() == {"algo-1": 0, "algo-2": 0}
        left = [Path(f"/proc/{pid}/stat") for pid in processes]
        assert not [stat.read_text() for stat in left if stat.exists()]
        for port in cluster.ports.values():
            if port:
                socket.create_server(("127.0.0.1", port)).close()
