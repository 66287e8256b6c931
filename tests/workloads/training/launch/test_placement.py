"""Which instances train, and which ranks they have: no Ray, no processes."""

import json
import os
import subprocess
import sys

import pytest

from raysm.errors import InvalidRequest
from raysm.workloads.nodes import Node
from raysm.workloads.training.launch.placement import DEFAULTS, Group, fill_arguments, place, torchrun_variables


def node(number, gpus=0, cpus=4, instance_type="ml.c5.xlarge"):
    return Node(
        host=f"algo-{number}",
        node_id=f"id-{number}",
        address=f"10.0.0.{number}",
        rank=number - 1,
        instance_type=instance_type,
        cpus=cpus,
        gpus=gpus,
    )


@pytest.mark.parametrize(
    ("nodes", "asked", "expected"),
    [
        ([node(1), node(2), node(3)], {}, [("algo-1", [0], 0), ("algo-2", [1], 0), ("algo-3", [2], 0)]),
        ([node(1), node(2)], {"workers_per_instance": 2}, [("algo-1", [0, 1], 0), ("algo-2", [2, 3], 0)]),
        # Each GPU has a worker; instances without have none.
        ([node(1), node(2, gpus=4), node(3, gpus=2)], {}, [("algo-2", [0, 1, 2, 3], 4), ("algo-3", [4, 5], 2)]),
        # A head that only coordinates has none either.
        ([node(1, cpus=0), node(2)], {}, [("algo-2", [0], 0)]),
        # A script that spawns is one process, which sees all GPUs.
        ([node(1, gpus=4), node(2, gpus=4)], {"spawns": True}, [("algo-1", [0], 4), ("algo-2", [1], 4)]),
        # A number of workers is spread evenly over CPUs, and fills GPUs.
        ([node(1), node(2)], {"workers": 3}, [("algo-1", [0, 1], 0), ("algo-2", [2], 0)]),
        ([node(1, gpus=2), node(2, gpus=2)], {"workers": 3}, [("algo-1", [0, 1], 2), ("algo-2", [2], 1)]),
    ],
)
def test_each_worker_has_its_instance_its_rank_and_its_gpus(nodes, asked, expected):
    places = place(nodes, **asked)
    assert [(item.node.host, list(item.ranks), item.gpus) for item in places] == expected
    assert [item.group_rank for item in places] == list(range(len(places)))


@pytest.mark.parametrize(
    ("nodes", "asked", "message"),
    [
        ([node(1), node(2, instance_type="ml.g5.12xlarge")], {}, "algo-2 is an ml.g5.12xlarge, but shows no GPU"),
        ([node(1, gpus=4), node(2, gpus=2)], {"workers_per_instance": 4}, "algo-2 has 2 GPUs"),
        ([node(1, gpus=4)], {"workers": 5}, "the instances have 4 GPUs"),
        ([node(1), node(2)], {"workers": 3, "workers_per_instance": 2}, "needs 1.5 instances, and 2 can train"),
        ([node(1, cpus=0)], {}, "only coordinates"),
    ],
)
def test_workers_that_do_not_fit_are_refused(nodes, asked, message):
    with pytest.raises(InvalidRequest, match=message):
        place(nodes, **asked)


NODES = [
    Node(host=f"algo-{n}", node_id=str(n), address=f"10.0.0.{n}", rank=n - 1, instance_type="", cpus=8, gpus=0)
    for n in (1, 2)
]
GROUP = Group(
    world_size=4, instances=2, master_address="10.0.0.1", master_port=29500, attempt=1, max_restarts=3, run_id="job"
)

PRINTS = """
import json, os
if os.environ["RANK"] == "1":
    print(json.dumps(dict(os.environ)))
"""


def test_torchrun_itself_sets_no_variable_that_is_missing(tmp_path):
    (tmp_path / "prints.py").write_text(PRINTS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "prints.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=True)
    theirs = json.loads(done.stdout.splitlines()[-1])
    set_by_it = [name for name, value in theirs.items() if os.environ.get(name) != value]
    names = {
        name for name in set_by_it if name.endswith(("RANK", "WORLD_SIZE")) or name.startswith(("MASTER_", "TORCH"))
    }
    ours = torchrun_variables(place(NODES, workers_per_instance=2)[0], 1, GROUP)
    # The agent adds the file, which is another one for each worker.
    assert names - {"TORCHELASTIC_ERROR_FILE"} <= set(ours) | set(DEFAULTS)
    if "TORCHELASTIC_SIGNALS_TO_HANDLE" in theirs:  # not of torch 2.9
        assert ours["TORCHELASTIC_SIGNALS_TO_HANDLE"] == theirs["TORCHELASTIC_SIGNALS_TO_HANDLE"]
    assert ours["OMP_NUM_THREADS"] == "4"
    assert ours["ROLE_NAME"] == theirs["ROLE_NAME"]


def test_a_script_that_spawns_finds_its_instance_in_its_arguments():
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    given = ["--rank={rank}", "--world-size", "{world_size}", "tcp://{master_addr}:{master_port}", "{other}"]
    assert fill_arguments(given, variables) == ("--rank=1", "--world-size", "2", "tcp://10.0.0.1:29500", "{other}")
