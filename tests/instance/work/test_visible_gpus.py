"""The GPUs that Ray's workers see: those that they ask for; in a session all of their instance.

``tests.with_ray`` runs this with the oldest supported release too, whose defaults differ. GPUs are
numbers here: no test opens one.
"""

import ast

import pytest

from tests.support.bootstraps import Cluster, request

DRIVER = """
import asyncio, os, pickle, sys, tempfile
from pathlib import Path

import cloudpickle
import ray
from raysm.features.session.protocol import CALL, CELL, SHELL, CallRequest, Outcome
from raysm.instance.work.blocks import map_blocks
from raysm.features.session.cluster.blobs import Blobs
from raysm.features.session.cluster.calls import Call
from raysm.features.session.cluster.output import OutputReceiver
from raysm.features.session.cluster.processes import CallProcesses
from raysm.features.session.cluster.remote_calls import InstanceCells, RemoteCalls

cloudpickle.register_pickle_by_value(sys.modules["__main__"])
ray.init(log_to_driver=False)

def visible(*_):
    return os.environ.get("CUDA_VISIBLE_DEVICES")

def block(**how):
    return next(seen for _, seen in map_blocks(visible, ["block"], **how))

def call_of(kind, body):
    return Call("c", CallRequest(kind=kind, name="f", host="algo-1"), body, lambda: None)

async def value(executor, kind, body):
    return Outcome.decode((await executor.run(call_of(kind, body)))[0])

async def session(private):
    receiver = OutputReceiver(private / "s")
    await receiver.start()
    calls = CallProcesses("algo-1", private, receiver, Blobs(private))
    cells = InstanceCells("algo-1", None, receiver)
    cells._is_here = lambda call: False
    try:
        call = await value(calls, CALL, cloudpickle.dumps((visible, (), {})))
        cell = await value(cells, CELL, b"import os; os.environ.get('CUDA_VISIBLE_DEVICES')")
        shell = await value(RemoteCalls("algo-1", private), SHELL, b"echo $CUDA_VISIBLE_DEVICES")
        seen = pickle.loads(call.pickled), cell.shown["text/plain"], pickle.loads(shell.pickled)["output"]
        return tuple(text.strip("\\n'") for text in seen)
    finally:
        calls.close()
        receiver.close()

with tempfile.TemporaryDirectory(prefix="rg") as folder:
    print("SESSION", asyncio.run(session(Path(folder))), flush=True)
print("TASKS", (block(), block(num_gpus=1), block(lasting=True), block(num_gpus=2, lasting=True)), flush=True)
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What a driver prints on an instance that may use the GPUs 4 and 5."""
    folder, variables = tmp_path_factory.mktemp("gpus"), {"CUDA_VISIBLE_DEVICES": "4,5"}
    with Cluster(folder, request(1), driver=DRIVER, fake=False, variables=variables) as cluster:
        codes = cluster.start().wait()
        assert codes == {"algo-1": 0}, cluster.log("algo-1")
        found = (
            line.split(" ", 1)
            for line in cluster.lines["algo-1"]
            if line.startswith(("TASKS", "SESSION"))
        )
        return {word: ast.literal_eval(value) for word, value in found}


def test_a_block_sees_the_gpus_that_it_asks_for_and_otherwise_none(printed):
    without, with_one, lasting_without, lasting_with_two = printed["TASKS"]
    assert (without, lasting_without) == ("", "")
    assert with_one in ("4", "5")
    assert sorted(lasting_with_two.split(",")) == ["4", "5"]


def test_calls_cells_and_commands_of_a_session_see_all_gpus_of_their_instance(printed):
    assert printed["SESSION"] == ("4,5", "4,5", "4,5")
