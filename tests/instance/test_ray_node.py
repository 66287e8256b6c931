"""A Ray node: its command line, what it imports before it starts, why it ended, and what its GCS tells."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from types import SimpleNamespace

import pytest

from raysm import Cluster, InstanceGroup, Ports
from raysm.core.protocol.names import LABEL_HOST
from raysm.core.protocol.packages import installed_version
from raysm.errors import MissingDependency
from raysm.instance import environment, ray_imports, ray_internals
from raysm.instance.children import Children
from raysm.instance.gcs_state import UNUSABLE, NodeWatcher, latest_by_host
from raysm.instance.lifecycle import Failed, Node, NodesChanged
from raysm.instance.ray_internals import Internal
from raysm.instance.ray_node import Capacity, RayNode, detect_capacity, start_arguments
from raysm.instance.ray_start import STAND_IN, adapt_start, lean, stand_in_for
from raysm.instance.resources import ObjectStore
from tests.support.bootstraps import write_training
from tests.support.own_process import run_apart

CAPACITY = Capacity(
    cpus=4, gpus=2, memory_bytes=1000, object_store=ObjectStore(bytes=300, folder=None)
)
GROUPS = [
    {
        "instance_group_name": "work, hard",
        "instance_type": "ml.g5.xlarge",
        "hosts": ["algo-2", "algo-10"],
    },
    {"instance_group_name": "head", "instance_type": "ml.t3.medium", "hosts": ["algo-1"]},
]


def told(base, host, **variables):
    write_training(base, host, ["algo-1", "algo-10", "algo-2"], instance_groups=GROUPS)
    return environment.read({"SAGEMAKER_BASE_DIR": str(base)} | variables)


def arguments(
    base,
    host="algo-1",
    *,
    cluster=None,
    ports=None,
    capacity=CAPACITY,
    head_address=None,
    address="10.0.0.1",
):
    return start_arguments(
        environment=told(base, host),
        cluster=cluster or Cluster(count=3),
        ports=ports or Ports(),
        capacity=capacity,
        head_address=head_address,
        node_address=address,
    )


def test_the_head_listens_on_the_ports_of_the_request(tmp_path):
    found = arguments(tmp_path)
    assert found[:3] == ["start", "--block", "--head"]
    assert {
        "--port=6379",
        "--dashboard-port=8265",
        "--dashboard-host=0.0.0.0",
        "--node-ip-address=10.0.0.1",
        "--node-manager-port=6381",
        "--object-manager-port=6382",
        "--runtime-env-agent-port=6383",
        "--dashboard-agent-listen-port=6384",
        "--dashboard-agent-grpc-port=6385",
        "--metrics-export-port=6386",
        "--min-worker-port=10002",
        "--max-worker-port=19999",
        "--num-cpus=4",
        "--num-gpus=2",
        "--memory=700",
        "--object-store-memory=300",
        "--temp-dir=/tmp/ray",
        "--disable-usage-stats",
    } <= set(found)


def test_ray_chooses_the_ports_that_the_request_leaves_to_it(tmp_path):
    # Without these options, Ray takes its fixed ports, which two nodes of one address would both
    # take.
    found = arguments(tmp_path, ports=Ports(dashboard_agent=0, worker_min=0))
    assert {"--dashboard-agent-listen-port=0", "--min-worker-port=0", "--max-worker-port=0"} <= set(
        found
    )


def test_a_node_says_its_host_group_type_and_rank(tmp_path):
    found = arguments(tmp_path, "algo-10", head_address="10.0.0.1:6379")
    labels = next(text for text in found if text.startswith("--labels="))
    assert labels == (
        "--labels=raysm.io/host=algo-10,raysm.io/group=work__hard,raysm.io/instance-type=ml.g5.xlarge,raysm.io/rank=2"
    )
    resources = json.loads(
        next(text for text in found if text.startswith("--resources=")).removeprefix("--resources=")
    )
    assert resources == {"host:algo-10": 1, "group:work_ hard": 1, "instance_type:ml.g5.xlarge": 1}


def test_a_head_that_only_coordinates_offers_no_cpu_and_no_gpu(tmp_path):
    groups = (
        InstanceGroup("head", "ml.t3.medium", 1),
        InstanceGroup("work, hard", "ml.g5.xlarge", 2),
    )
    cluster = Cluster(groups=groups, head="head", coordinator_only=True)
    assert {"--num-cpus=0", "--num-gpus=0"} <= set(arguments(tmp_path, cluster=cluster))
    worker = arguments(tmp_path, "algo-2", cluster=cluster, head_address="10.0.0.1:6379")
    assert {"--num-cpus=4", "--num-gpus=2"} <= set(worker)


def test_what_the_variables_say_wins_over_what_is_detected(tmp_path):
    for name in ("proc", "dev/shm"):
        (tmp_path / "root" / name).mkdir(parents=True)
    (tmp_path / "root/proc/meminfo").write_text("MemTotal: 8388608 kB\n")
    variables = {
        "RAYSM_CPUS": "3",
        "RAYSM_MEMORY_BYTES": "4000000000",
        "RAYSM_OBJECT_STORE_BYTES": "90000000",
    }
    found = detect_capacity(
        told(tmp_path, "algo-1", **variables), {"CUDA_VISIBLE_DEVICES": "0"}, tmp_path / "root"
    )
    assert (found.cpus, found.gpus, found.memory_bytes, found.object_store.bytes) == (
        3,
        1,
        4 * 10**9,
        90_000_000,
    )
    detected = detect_capacity(
        told(tmp_path, "algo-1"), {"CUDA_VISIBLE_DEVICES": ""}, tmp_path / "root"
    )
    assert (detected.gpus, detected.memory_bytes) == (0, 8 * 2**30)
    assert detected.cpus >= 1


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        (
            "2026-01-01 10:00:00,000\tERR scripts.py:1307 -- Some Ray subprocesses exited unexpectedly:\n"
            "2026-01-01 10:00:00,000\tERR scripts.py:1311 --   raylet [exit code=-9]\n"
            "2026-01-01 10:00:00,000\tERR scripts.py:1315 -- Remaining processes will be killed.\n",
            "raylet [exit code=-9]",
        ),
        (
            "Some Ray subprocesses exited unexpectedly:\n"
            "----- BEGIN gcs_server.out tail (exit code(s)=-9 (signal 9)) -----\n"
            + "[2026-01-01 10:00:00,000 I 1 1] (gcs_server) gcs_server.cc:1: noise\n" * 100
            + "----- END gcs_server.out tail (exit code(s)=-9 (signal 9)) -----\nRemaining processes will be killed.\n",
            "gcs_server [exit code=-9 (signal 9)]",
        ),
        (
            "Traceback (most recent call last):\n  File x\nValueError: no such port\n",
            "File x ValueError: no such port",
        ),
        ("", "it exited with code 1 without a word"),
    ],
)
def test_why_a_node_ended_is_what_ray_said_last(printed, why):
    async def scenario():
        children = Children()
        code = f"import sys; sys.stdout.write({printed!r}); sys.exit(1)"
        node = RayNode(children, [sys.executable, "-S", "-c", code], os.environ)
        await asyncio.wait_for(node.ended, 90)
        said = node.why()
        node.close()
        children.close()
        return said

    assert run_apart(scenario) == why


RAYLET = ["raylet", "--num_prestart_python_workers=96", "--port=1"]


def test_as_many_workers_are_started_ahead_as_are_asked_for():
    seen = []
    for workers in (1, None):
        adapt_start(lambda command, process_type: seen.append(command), workers, None, False)(
            RAYLET, "raylet"
        )
    assert seen == [["raylet", "--num_prestart_python_workers=1", "--port=1"], RAYLET]


@pytest.mark.parametrize(
    ("option", "port_option", "service"),
    [
        ("--dashboard_agent_command", "--listen-port", "dashboard_agent_listen_port"),
        ("--runtime_env_agent_command", "--runtime-env-agent-port", "runtime_env_agent_port"),
    ],
)
def test_a_raylet_starts_a_stand_in_of_each_agent_with_the_agent_s_own_command_line_behind(
    option, port_option, service
):
    agent = [sys.executable, "-u", "agent.py", "--session-dir=/a folder", "--head"]
    words = shlex.split(stand_in_for(f"{option}={shlex.join(agent)}").removeprefix(f"{option}="))
    assert words[: len(STAND_IN) + 1] == [*STAND_IN, port_option]
    assert words[len(STAND_IN) + 1].split(",")[-1] == service
    assert words[len(STAND_IN) + 2 :] == agent


@pytest.mark.parametrize("python", ["python -m memray run", "python"])
def test_an_agent_that_is_run_in_another_way_starts_with_its_node(python):
    word = f"--dashboard_agent_command={python} agent.py"
    assert stand_in_for(word) == word


def test_ray_learns_whether_the_dashboard_s_packages_are_installed_without_importing_them():
    code = """
import sys
from ray._private.utils import get_dashboard_dependency_error
from raysm.instance.ray_start import defer_dashboard_packages
sys.modules["aiohttp_cors"] = None
defer_dashboard_packages()
print(type(get_dashboard_dependency_error()).__name__)
del sys.modules["aiohttp_cors"]
defer_dashboard_packages()
print(get_dashboard_dependency_error(), "aiohttp_cors" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "ModuleNotFoundError\nNone False\n"


PROGRAM = """
import json, sys
before = [name for name in ("requests", "yaml") if name in sys.modules]
import ray
after = [name for name in ("requests", "yaml") if name in sys.modules]
import requests
print(json.dumps({
    "before": before, "after": after, "argv": sys.argv[1:], "name": __name__, "path": sys.path[0],
    "ray": ray.get(), "same": ray._common.usage.usage_lib.requests.get is requests.get,
    "module": type(requests).__name__,
}))
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with a program and with packages named like Ray and like two that it imports."""
    files = {
        "ray/__init__.py": "from yaml import load\nget = lambda: [_common.usage.usage_lib.requests.get(), load()]\n",
        "ray/_common/usage/usage_lib.py": "import requests\n",
        "requests/__init__.py": "from requests import sessions\n\ndef get():\n    return sessions.VALUE\n",
        "requests/sessions.py": "VALUE = 7\n",
        "yaml.py": "def load():\n    return 8\n",
        "program.py": PROGRAM,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_ray_imports_a_rare_package_when_it_uses_it_and_the_program_gets_the_package_itself(folder):
    command = [sys.executable, ray_imports.__file__, str(folder / "program.py"), "--node", "1"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == {
        "before": [],
        # Only the one of which Ray took a name while it was imported.
        "after": ["yaml"],
        "argv": ["--node", "1"],
        "name": "__main__",
        "path": str(folder),
        "ray": [7, 8],
        "same": True,
        "module": "module",
    }


def test_an_error_in_the_program_ends_it_as_without_this(folder):
    (folder / "program.py").write_text("raise SystemExit(7)")
    command = [sys.executable, ray_imports.__file__, str(folder / "program.py")]
    assert subprocess.run(command, check=False).returncode == 7


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and memfd")
@pytest.mark.parametrize(
    ("call", "variables", "role"),
    [
        ("rank=3", {}, "rank 3"),
        ("", {"RANK": "2"}, "rank 2"),
        ("rank=1, world_size=2", {"RANK": "0"}, "rank 1"),
        ("", {}, "worker"),
    ],
)
def test_worker_that_makes_a_process_group_is_named_by_its_rank(tmp_path, call, variables, role):
    packages = {
        "torch/__init__.py": "from types import SimpleNamespace\n_C = SimpleNamespace(_distributed_c10d=None)\n",
        "torch/distributed/__init__.py": "from torch.distributed.distributed_c10d import *\n",
        "torch/distributed/distributed_c10d.py": FAKE_GROUP,
        "default_worker.py": f"import torch.distributed as dist\ndist.init_process_group({call})\n",
    }
    for name, text in packages.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, ray_imports.__file__, str(tmp_path / "default_worker.py")]
    environ = {**os.environ, **variables}
    out = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
    assert out.strip() == role


FAKE_GROUP = """\
import os

from raysm.core.protocol.stack_signal import find_file


def init_process_group(backend=None, rank=-1, world_size=-1):
    print(find_file(os.getpid())[1])
"""


def test_a_worker_its_setup_in_second_place_and_the_log_monitor_are_run_by_it():
    setup, worker = (
        "/ray/_private/workers/setup_worker.py",
        "/ray/_private/workers/default_worker.py",
    )
    ours = ray_imports.__file__.replace("ray_imports", "setup_worker")
    assert lean(["python", setup, worker, "--a=b"]) == [
        "python",
        ours,
        ray_imports.__file__,
        worker,
        "--a=b",
    ]
    monitor = ["python", "-u", "/ray/_private/log_monitor.py", "--x"]
    assert lean(monitor) == [*monitor[:2], ray_imports.__file__, *monitor[2:]]
    assert lean(["raylet", "--a=b"]) == ["raylet", "--a=b"]


INTERNALS = [value for value in vars(ray_internals).values() if isinstance(value, Internal)]

newest = pytest.mark.skipif(
    not (installed_version("ray") or "").startswith("2.60."),
    reason="an older Ray may lack what only makes jobs faster",
)


@newest
@pytest.mark.parametrize(
    "internal", INTERNALS, ids=lambda internal: f"{internal.module}.{internal.name}"
)
def test_the_installed_ray_has_each_name(internal):
    assert internal.find() is not None


KNOWN = NodesChanged({"algo-1": Node("a", "10.0.0.1")})
LINE = '{"algo-1": {"id": "a", "address": "10.0.0.1"}}\n'


def seen_twice(path, text):
    """Return what a watcher reports until it has done so twice, when each that connects to ``path`` is told a text."""

    async def scenario():
        connected = []

        async def tell(reader, writer):
            connected.append(writer)
            writer.write(text.encode())
            writer.close()

        watcher = NodeWatcher(path)
        seen = []
        twice = asyncio.Event()

        def report(event):
            seen.append(event)
            if len(seen) == 2:
                twice.set()

        async with await asyncio.start_unix_server(tell, path):
            watcher.start(report)
            await asyncio.wait_for(twice.wait(), 120)
            watcher.stop()
        return seen

    return run_apart(scenario)[:2]


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_of_a_host_whose_killed_node_still_counts_as_alive_the_new_node_is_told(order):
    infos = [
        (
            name,
            SimpleNamespace(
                labels={LABEL_HOST: "algo-2"},
                state=state,
                start_time_ms=at,
                node_manager_address=name,
            ),
        )
        for name, state, at in (
            (b"old", ray_internals.ALIVE, 1),
            (b"new", ray_internals.ALIVE, 2),
            (b"dead", 1, 3),
        )
    ]
    assert latest_by_host(dict(infos[order])) == {"algo-2": {"id": b"new".hex(), "address": b"new"}}


def test_changes_are_reported_and_who_has_left_is_asked_again(tmp_path):
    assert seen_twice(tmp_path / "nodes", LINE) == [KNOWN] * 2


@pytest.mark.parametrize("nonsense", ['{"algo-1": {"i', "{\n", '{"algo-1": {}}\n', "[]\n"])
def test_who_tells_a_torn_or_foreign_line_is_asked_again(tmp_path, nonsense):
    assert seen_twice(tmp_path / "nodes", LINE + nonsense) == [KNOWN] * 2


def test_a_ray_that_cannot_be_asked_is_a_failure_with_its_version_and_not_a_deadline(tmp_path):
    answer = json.dumps({UNUSABLE: "Ray 9.9 has no ray._raylet.GcsClient"}) + "\n"
    failed, _ = seen_twice(tmp_path / "nodes", answer)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, MissingDependency)
    assert str(failed.error) == "Ray 9.9 has no ray._raylet.GcsClient"
