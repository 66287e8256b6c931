"""Which instances train, with which ranks; and the workers of one, and the agent that starts them."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from ray.train import ScalingConfig

from raysm import training
from raysm.errors import InvalidRequest
from raysm.features.training.cluster.launch.data_parallel import lost_nodes, trainer_class
from raysm.features.training.cluster.launch.loop_worker import train_and_save
from raysm.features.training.cluster.launch.placement import (
    DEFAULTS,
    Group,
    fill_arguments,
    place,
    torchrun_variables,
)
from raysm.features.training.cluster.launch.torch_script import Agent
from raysm.features.training.cluster.loop import session
from raysm.instance.work.nodes import Node


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
        (
            [node(1), node(2), node(3)],
            {},
            [("algo-1", [0], 0), ("algo-2", [1], 0), ("algo-3", [2], 0)],
        ),
        (
            [node(1), node(2)],
            {"workers_per_instance": 2},
            [("algo-1", [0, 1], 0), ("algo-2", [2, 3], 0)],
        ),
        # Each GPU has a worker; instances without have none.
        (
            [node(1), node(2, gpus=4), node(3, gpus=2)],
            {},
            [("algo-2", [0, 1, 2, 3], 4), ("algo-3", [4, 5], 2)],
        ),
        # A head that only coordinates has none either.
        ([node(1, cpus=0), node(2)], {}, [("algo-2", [0], 0)]),
        # A script that spawns is one process, which sees all GPUs.
        (
            [node(1, gpus=4), node(2, gpus=4)],
            {"spawns": True},
            [("algo-1", [0], 4), ("algo-2", [1], 4)],
        ),
        # A number of workers is spread evenly over CPUs, and fills GPUs.
        ([node(1), node(2)], {"workers": 3}, [("algo-1", [0, 1], 0), ("algo-2", [2], 0)]),
        (
            [node(1, gpus=2), node(2, gpus=2)],
            {"workers": 3},
            [("algo-1", [0, 1], 2), ("algo-2", [2], 1)],
        ),
    ],
)
def test_each_worker_has_its_instance_its_rank_and_its_gpus(nodes, asked, expected):
    places = place(nodes, **asked)
    assert [(item.node.host, list(item.ranks), item.gpus) for item in places] == expected
    assert [item.group_rank for item in places] == list(range(len(places)))


@pytest.mark.parametrize(
    ("nodes", "asked", "message"),
    [
        (
            [node(1), node(2, instance_type="ml.g5.12xlarge")],
            {},
            "algo-2 .*ml.g5.12xlarge.* no GPU",
        ),
        ([node(1, gpus=4), node(2, gpus=2)], {"workers_per_instance": 4}, "algo-2 .* 2 GPUs"),
        ([node(1, gpus=4)], {"workers": 5}, " 4 GPUs"),
        ([node(1), node(2)], {"workers": 3, "workers_per_instance": 2}, " 1.5 instances.* 2 "),
        ([node(1, cpus=0)], {}, "only coordinates"),
    ],
)
def test_workers_that_do_not_fit_are_refused(nodes, asked, message):
    with pytest.raises(InvalidRequest, match=message):
        place(nodes, **asked)


NODES = [
    Node(
        host=f"algo-{n}",
        node_id=str(n),
        address=f"10.0.0.{n}",
        rank=n - 1,
        instance_type="",
        cpus=8,
        gpus=0,
    )
    for n in (1, 2)
]
GROUP = Group(
    world_size=4,
    instances=2,
    master_address="10.0.0.1",
    master_port=29500,
    attempt=1,
    max_restarts=3,
    run_id="job",
)

PRINTS = """
import json, os
if os.environ["RANK"] == "1":
    print(json.dumps(dict(os.environ)))
"""


def test_torchrun_itself_sets_no_variable_that_is_missing(tmp_path):
    (tmp_path / "prints.py").write_text(PRINTS)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "prints.py",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True
    )
    theirs = json.loads(done.stdout.splitlines()[-1])
    set_by_it = [name for name, value in theirs.items() if os.environ.get(name) != value]
    names = {
        name
        for name in set_by_it
        if name.endswith(("RANK", "WORLD_SIZE")) or name.startswith(("MASTER_", "TORCH"))
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
    given = [
        "--rank={rank}",
        "--world-size",
        "{world_size}",
        "tcp://{master_addr}:{master_port}",
        "{other}",
    ]
    assert fill_arguments(given, variables) == (
        "--rank=1",
        "--world-size",
        "2",
        "tcp://10.0.0.1:29500",
        "{other}",
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
def test_the_workers_start_without_a_manager_of_ray_datasets_and_without_what_asks_the_dashboard():
    trainer = trainer_class()(lambda: None, scaling_config=ScalingConfig(num_workers=1))
    names = [type(callback).__name__ for callback in trainer._create_default_callbacks()]
    assert "BackendSetupCallback" in names
    assert not {"DatasetsCallback", "PlacementGroupCleanerCallback"} & set(names)


def test_an_instance_that_is_silent_is_lost_but_where_this_one_has_no_breath_either():
    head, silent, failed = (
        Node(host=name, node_id=name, address="", rank=rank, instance_type="", cpus=2, gpus=0)
        for rank, name in enumerate(("algo-1", "algo-2", "algo-3"))
    )
    assert lost_nodes([silent], [failed], own_id=head.node_id) == [silent, failed]
    assert lost_nodes([head, silent], [failed], own_id=head.node_id) == [failed]
    assert lost_nodes([], [], own_id=head.node_id) == []


def started(code):
    return subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)


def test_once_a_worker_fails_the_others_are_ended_and_known_by_it():
    agent = Agent(own_end_s=0)
    agent._running = {
        4: started("import sys; sys.exit(3)"),
        5: started("import time; time.sleep(600)"),
    }
    begun_s = time.time()
    first, second = agent._watch()
    assert (first.rank, first.status, first.was_ended) == (4, 3, False)
    assert (second.rank, second.was_ended) == (5, True)
    assert second.status < 0
    assert begun_s <= first.at_s <= second.at_s


def test_one_that_fails_for_want_of_another_one_leaves_it_to_end_by_itself():
    agent = Agent(own_end_s=60)
    ours, theirs = os.pipe()
    first = subprocess.Popen(
        [sys.executable, "-S", "-c", "import sys; sys.exit(1)"],
        pass_fds=[theirs],
        start_new_session=True,
    )
    os.close(theirs)
    # Its pipe ends when the first one has.
    second = [sys.executable, "-S", "-c", "import sys; sys.stdin.read(); sys.exit(3)"]
    agent._running = {0: first, 1: subprocess.Popen(second, stdin=ours, start_new_session=True)}
    os.close(ours)
    exits = {one.rank: one for one in agent._watch()}
    assert {rank: (one.status, one.was_ended) for rank, one in exits.items()} == {
        0: (1, False),
        1: (3, False),
    }


def test_one_that_is_killed_after_it_was_told_to_end_was_not_ended_unless_the_agent_killed_it():
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    for kills, was_ended in (
        (lambda agent, popen: popen.kill(), False),
        (lambda agent, popen: agent._kill([popen]), True),
    ):
        agent = Agent()
        popen = subprocess.Popen(
            [sys.executable, "-S", "-c", deaf], start_new_session=True, stdout=subprocess.PIPE
        )
        popen.stdout.readline()  # from now on it hears no SIGTERM
        agent._running = {0: popen}
        agent._end(600)
        kills(agent, popen)
        (end,) = agent._watch()
        assert (end.status, end.was_ended) == (-signal.SIGKILL, was_ended)
        popen.stdout.close()


@pytest.fixture
def loop(tmp_path, monkeypatch):
    """A loop that trains a model of one weight, and then calls what it is given."""
    monkeypatch.chdir(tmp_path)
    session.begin()

    def train(leave):
        model = torch.nn.Linear(1, 1, bias=False)
        model, optimizer = training.prepare(
            model, torch.optim.SGD(model.parameters(), lr=0.1), loss=torch.nn.functional.mse_loss
        )
        leave()

    yield train
    session.end()


@pytest.mark.parametrize(
    "leave", [lambda: None, sys.exit, lambda: sys.exit(0)], ids=["return", "exit", "exit 0"]
)
def test_the_model_is_saved_also_of_a_loop_that_ends_by_an_exit_with_0(loop, leave, tmp_path):
    train_and_save(lambda: loop(leave))
    assert (tmp_path / "model" / "model.safetensors").is_file()


def test_a_loop_that_ends_by_another_exit_leaves_no_model(loop, tmp_path):
    with pytest.raises(SystemExit, match="3"):
        train_and_save(lambda: loop(lambda: sys.exit(3)))
    assert not (tmp_path / "model").exists()
