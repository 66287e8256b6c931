"""The bootstrap with Ray itself: two instances on this machine, one after the other test of the whole."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from raysm.bootstrap.children import descendants
from tests.support.bootstraps import Cluster, request
from tests.support.dashboards import await_dashboard

DRIVER = """
import json, os, sys, time
import ray
ray.init(log_to_driver=False)

@ray.remote(num_cpus=1)
def where():
    return os.environ["SM_CURRENT_HOST"], os.environ["SAGEMAKER_BASE_DIR"]

@ray.remote(num_cpus=1)
class Stays:
    def ping(self): return 1

on = lambda host: where.options(resources={f"host:{host}": 0.001})
nodes = sorted((node["Labels"]["raysm.io/host"], node["Resources"]["CPU"]) for node in ray.nodes())
print("NODES", json.dumps(nodes), flush=True)
print("TASKS", json.dumps([ray.get(on(host).remote()) for host in ("algo-1", "algo-2")]), flush=True)
print("HOME", os.path.exists(os.path.expanduser("~/.ray")), flush=True)
print("user code runs", flush=True)
import pathlib
while not pathlib.Path("go").exists(): time.sleep(.05)
print("AGAIN", json.dumps(ray.get(on("algo-2").remote())), flush=True)
"""


def printed(cluster, word):
    return next(line[len(word) + 1 :].strip() for line in cluster.lines["algo-1"] if line.startswith(word))


def listening(pids):
    """Return the TCP ports that these processes listen on, read from /proc alone."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(link))
            except OSError:
                continue
            if found:
                inodes.add(found[1])
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


ASK = """
import sys, grpc
for port in sys.argv[2:]:
    for method in ("ray.rpc.NodeInfoGcsService/GetAllNodeInfo", "ray.rpc.NodeManagerService/GetNodeStats",
                   "ray.rpc.ObjectManagerService/Push", "ray.rpc.ReporterService/GetTraceback",
                   "ray.rpc.CoreWorkerService/GetCoreWorkerStats", "ray.rpc.RayletDriver/ClusterInfo"):
        call = grpc.insecure_channel(f"{sys.argv[1]}:{port}").unary_unary("/" + method)
        try:
            call(b"", timeout=2)
            print(port, method, "ANSWERED")
        except grpc.RpcError as error:
            print(port, method, error.code().name)
"""


def http_status(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/version", timeout=2) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except (OSError, http.client.HTTPException):
        return None


def below(cluster):
    return [pid for each in cluster.processes.values() for pid in descendants(each.pid)]


def test_two_instances_form_one_cluster_survive_a_raylet_and_leave_nothing(tmp_path):
    with Cluster(tmp_path, request(2), driver=DRIVER, fake=False) as cluster:
        cluster.start().wait_for("user code runs", 180)
        # Its port is kept by ``ray start`` until somebody asks.
        assert not [pid for pid in below(cluster) if b"dashboard/dashboard.py" in read(Path(f"/proc/{pid}/cmdline"))]
        assert await_dashboard(cluster.ports["dashboard"])
        assert http_status(cluster.ports["dashboard"]) == 401
        processes = below(cluster)

        assert printed(cluster, "NODES") == '[["algo-1", 1.0], ["algo-2", 1.0]]'
        bases = [[host, str(cluster.base(host))] for host in cluster.hosts]
        assert printed(cluster, "TASKS") == str(bases).replace("'", '"')

        ports = listening(processes)
        assert len(ports) >= 8
        assert not ports & {44217, 44227, 10001}
        statuses = {port: http_status(port) for port in ports}
        assert set(statuses.values()) == {401, None}
        others = [str(port) for port, status in statuses.items() if status is None]
        asked = [sys.executable, "-c", ASK, "127.0.0.1", *others]
        answers = subprocess.run(asked, capture_output=True, text=True, timeout=120)
        assert "UNAUTHENTICATED" in answers.stdout
        assert "ANSWERED" not in answers.stdout

        raylet = next(
            pid
            for pid in descendants(cluster.processes["algo-2"].pid)
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(b"raylet/raylet")
        )
        os.kill(raylet, signal.SIGKILL)
        cluster.wait_for('"rejoined"')
        (cluster.base("algo-1") / "input/data/raysm/source/go").touch()
        cluster.wait_for("AGAIN")
        assert cluster.wait() == {"algo-1": 0, "algo-2": 0}
        left = [Path(f"/proc/{pid}/stat") for pid in processes]
        assert not [stat.read_text() for stat in left if stat.exists()]
        for port in cluster.ports.values():
            if port:
                socket.create_server(("127.0.0.1", port)).close()


def test_rays_own_clients_start_the_dashboard_also_in_a_task_at_the_jobs_start(tmp_path):
    driver = """
import ray
from ray.job_submission import JobSubmissionClient

@ray.remote
def states():
    from ray.util.state import list_nodes

    return [node.state for node in list_nodes()]

ray.init(log_to_driver=False)
print("NODES", ray.get(states.remote()), flush=True)
print("JOBS", JobSubmissionClient().list_jobs()[0].status.value, flush=True)
"""
    with Cluster(tmp_path, request(1), driver=driver, fake=False) as cluster:
        assert cluster.start().wait() == {"algo-1": 0}, cluster.log("algo-1")
        assert printed(cluster, "NODES") == "['ALIVE']"
        assert printed(cluster, "JOBS") == "RUNNING"


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""
