"""What torchrun tells its workers."""

import json
import os
import subprocess
import sys

from raysm.workloads.nodes import Node
from raysm.workloads.training.launch.placement import DEFAULTS, Group, fill_arguments, place, torchrun_variables

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
    assert ours["TORCHELASTIC_SIGNALS_TO_HANDLE"] == theirs["TORCHELASTIC_SIGNALS_TO_HANDLE"]
    assert ours["OMP_NUM_THREADS"] == "4"
    assert ours["ROLE_NAME"] == theirs["ROLE_NAME"]


def test_the_second_instances_first_worker():
    ours = torchrun_variables(place(NODES, workers_per_instance=2)[1], 0, GROUP)
    assert (ours["RANK"], ours["LOCAL_RANK"], ours["GROUP_RANK"]) == ("2", "0", "1")
    assert (ours["MASTER_ADDR"], ours["MASTER_PORT"]) == ("10.0.0.1", "29500")
    assert (ours["TORCHELASTIC_RESTART_COUNT"], ours["TORCHELASTIC_MAX_RESTARTS"]) == ("1", "3")


def test_threads_that_the_user_has_set_stay():
    assert torchrun_variables(place(NODES)[0], 0, GROUP, threads=3)["OMP_NUM_THREADS"] == "3"


def test_a_script_that_spawns_finds_its_instance_in_its_arguments():
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    given = ["--rank={rank}", "--world-size", "{world_size}", "tcp://{master_addr}:{master_port}", "{other}"]
    assert fill_arguments(given, variables) == ("--rank=1", "--world-size", "2", "tcp://10.0.0.1:29500", "{other}")
