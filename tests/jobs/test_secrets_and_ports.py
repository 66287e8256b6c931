"""Who has no token learns nothing and does nothing: every port of a running cluster, asked from outside."""

import http.client
import importlib.util
import os
import subprocess
from pathlib import Path

import grpc
import pytest

from raysm.core.protocol.events import State
from raysm.core.request import Cluster, Ports
from tests.support.jobs import ENDS_S, script_request, started
from tests.support.processes import inside
from tests.support.waiting import until

pytestmark = pytest.mark.namespace

AN_ACTOR_ON_EACH_NODE = """
import os, time, ray
ray.init(log_to_driver=False)
@ray.remote(num_cpus=0)
class Actor:
    def work(self):
        return 1
hosts = [node["Labels"]["raysm.io/host"] for node in ray.nodes()]
actors = [Actor.options(label_selector={"raysm.io/host": host}).remote() for host in hosts]
ray.get([actor.work.remote() for actor in actors])
print("user code runs", flush=True)
while not os.path.exists(os.environ["SM_MODEL_DIR"] + "/go"):
    time.sleep(0.05)
"""

ALL_NODES = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"

CALLS = (
    ALL_NODES,
    "/ray.rpc.InternalKVGcsService/InternalKVKeys",
    "/ray.rpc.JobInfoGcsService/GetAllJobInfo",
    "/ray.rpc.ActorInfoGcsService/GetAllActorInfo",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    "/ray.rpc.NodeManagerService/GetSystemConfig",
    "/ray.rpc.NodeManagerService/ShutdownRaylet",
    "/ray.rpc.ObjectManagerService/Pull",
    "/ray.rpc.ObjectManagerService/FreeObjects",
    "/ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "/ray.rpc.CoreWorkerService/PushTask",
    "/ray.rpc.CoreWorkerService/Exit",
    "/ray.rpc.ReporterService/HealthCheck",
    "/ray.rpc.LogService/ListLogs",
    "/ray.rpc.RayletDriver/Init",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
)
"""Calls that read or do something, of every service that Ray's processes have. Two are left out on
purpose: the health check answers "alive" to anybody, which orchestrators rely on, and
RaySyncer/StartSync, see the README."""

PORTS = Ports()

ANSWERS_S = 60.0
"""A port answers at once, or closes the connection; on a loaded machine that takes seconds."""

REFUSALS = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.UNAVAILABLE,
}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("running")
    request = script_request(folder, AN_ACTOR_ON_EACH_NODE, cluster=Cluster(count=2))
    with started(request, folder / "job") as (job, log):
        log.wait_for_text("user code runs")
        # The first who asks has them started: the dashboard, with which its agents come, and those
        # of the environments.
        until(lambda: http_status(job.instances["algo-1"].address, 8265, "/") == 200, timeout_s=120)
        for instance in job.instances.values():
            for port in (PORTS.runtime_env_agent, PORTS.dashboard_agent):
                until(lambda: http_status(instance.address, port, "/") is not None, timeout_s=120)  # noqa: B023
        yield job, log
        # What was asked of the ports must not have hurt anybody: the job still ends well.
        (job.model_dir / "go").touch()
        outcome = job.wait(timeout_s=ENDS_S)
        assert outcome.status == "Completed", outcome.failure_reason
        assert [event for event in log.events(State) if event.name == "lost"] == []


def listening(pid):
    """Return the (address, port) pairs on which anything in the network namespace of ``pid`` listens."""
    found = set()
    for table, any_address in (("tcp", "00000000"), ("tcp6", "0" * 32)):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address, port = fields[1].split(":")
            if fields[3] == "0A":
                loopback = (
                    address.endswith("7F")
                    if table == "tcp"
                    else address.endswith("01000000") and address != any_address
                )
                found.add(("loopback" if loopback else "any", int(port, 16)))
    return found


def token_of(job):
    return (job.paths("algo-1").base.parents[1] / "payload" / "token").read_text()


def refused_by_grpc(address, port, call, metadata=()):
    with grpc.insecure_channel(f"{address}:{port}") as channel:
        try:
            channel.unary_unary(call)(b"", timeout=ANSWERS_S, metadata=metadata)
        except grpc.RpcError as error:
            return error.code() in REFUSALS
    return False


def http_status(address, port, path, headers=None):
    """Return the status of a GET, or None where the port speaks no HTTP/1."""
    connection = http.client.HTTPConnection(address, port, timeout=ANSWERS_S)
    try:
        connection.request("GET", path, headers=headers or {})
        return connection.getresponse().status
    except (http.client.HTTPException, OSError):
        return None
    finally:
        connection.close()


def test_the_cluster_listens_where_the_readme_says(running):
    job, _ = running
    head = {port for where, port in listening(job.instances["algo-1"].pid) if where == "any"}
    worker = {port for where, port in listening(job.instances["algo-2"].pid) if where == "any"}
    assert {6379, 6380, 8265} <= head
    for port in head - {6379, 6380, 8265} | worker:
        assert 6381 <= port <= 6386 or 10002 <= port <= 19999, port


@pytest.mark.parametrize("host", ["algo-1", "algo-2"])
def test_no_port_reads_or_does_anything_for_a_caller_without_the_token(running, host):
    job, _ = running
    address = job.instances[host].address
    answered = []
    for where, port in sorted(listening(job.instances[host].pid)):
        if where == "loopback":
            continue
        answered += [(port, call) for call in CALLS if not refused_by_grpc(address, port, call)]
        answered += [
            (port, path, status)
            for path in (
                "/api/version",
                "/api/jobs/",
                "/nodes?view=summary",
                "/metrics",
                "/logs/index.html",
            )
            if (status := http_status(address, port, path)) not in (None, 401, 403)
        ]
    assert answered == []


def test_with_the_token_the_same_calls_are_answered(running):
    job, _ = running
    address = job.instances["algo-1"].address
    bearer = f"Bearer {token_of(job)}"
    assert not refused_by_grpc(address, 6379, ALL_NODES, metadata=(("authorization", bearer),))
    assert http_status(address, 8265, "/api/version", {"Authorization": bearer}) == 200


def test_the_dashboard_shows_a_stranger_its_empty_page_which_asks_for_the_token(running):
    job, _ = running
    connection = http.client.HTTPConnection(
        job.instances["algo-1"].address, 8265, timeout=ANSWERS_S
    )
    connection.request("GET", "/")
    page = connection.getresponse().read()
    connection.close()
    build = Path(importlib.util.find_spec("ray").origin).parent / "dashboard" / "client" / "build"
    assert page == (build / "index.html").read_bytes()


def test_a_wrong_token_is_refused_like_none(running):
    job, _ = running
    address = job.instances["algo-1"].address
    wrong = f"Bearer {'0' * 64}"
    assert refused_by_grpc(address, 6379, ALL_NODES, metadata=(("authorization", wrong),))
    assert http_status(address, 8265, "/api/version", {"Authorization": wrong}) in (401, 403)


def test_the_token_is_in_no_argument_and_no_environment(running):
    job, _ = running
    token = token_of(job).encode()
    looked_at = 0
    for instance in job.instances.values():
        for pid in inside(instance.pid):
            looked_at += 1
            for name in ("cmdline", "environ"):
                assert token not in Path(f"/proc/{pid}/{name}").read_bytes(), (pid, name)
    assert looked_at > 10


def test_another_user_sees_no_token_in_ps(running):
    job, _ = running
    shown = subprocess.run(
        ["ps", "axeww"], capture_output=True, user="nobody", group="nogroup", check=True
    ).stdout
    assert b"raysm.instance" in shown
    assert token_of(job).encode() not in shown


def test_the_token_is_in_no_file_but_its_own(running):
    job, _ = running
    token = token_of(job).encode()
    holding = []
    for folder, _, names in os.walk(job.paths("algo-1").base.parents[1]):
        for path in (Path(folder) / name for name in names):
            if path.is_file() and not path.is_symlink() and token in path.read_bytes():
                holding.append(path)
    # The payload's, and that of each instance, which has a copy of the payload as on SageMaker.
    assert [path.name for path in holding] == ["token"] * len(holding)
    assert 1 <= len(holding) <= 1 + len(job.instances)
    assert all(path.stat().st_mode & 0o077 == 0 for path in holding)
