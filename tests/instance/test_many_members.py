"""A head with 200 members, which speak the protocol without Ray: all join, one is lost, all end."""

import asyncio

import pytest

from raysm.core.protocol.events import State, parse
from raysm.core.protocol.result import own_manifest
from raysm.instance.head_policy import MAX_JOINED_LINES
from tests.support.bootstraps import DEADLINE_S, Cluster, request
from tests.support.members import Members

COUNT = 200
LOST = f"algo-{COUNT // 2}"

DRIVER = """
import os, time
from pathlib import Path
from raysm.core.protocol.result import Manifest

model = Path(os.environ["SM_MODEL_DIR"])
model.mkdir(exist_ok=True)
Manifest(
    job="many", workload={}, inputs={}, files=(), versions={}, instances=("algo-1",), phases_s={}
).write(model)
print("user code runs", flush=True)
while not Path("go").exists():
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The log, the exit code and the manifest of a job of 200 members, one of which was lost."""
    job = request(COUNT + 1, silence_s=600, on_instance_loss="continue")
    folder = tmp_path_factory.mktemp("many")
    with Cluster(folder, job, driver=DRIVER, startable=["algo-1"]) as cluster:
        yield asyncio.run(live(cluster))


async def live(cluster):
    members = Members(cluster, outputs=1)
    cluster.start("algo-1")
    try:
        async with asyncio.timeout(DEADLINE_S):
            await members.join()
            await asyncio.to_thread(cluster.wait_for, "user code runs")
            await members.members[LOST].lose()
            await asyncio.to_thread(cluster.wait_for, f"{LOST} lost: closed its connection")
            cluster.go()
            # In a thread, because the members say goodbye meanwhile.
            codes = await asyncio.to_thread(cluster.wait)
    finally:
        await members.close()
    manifest = own_manifest(members.instance.environment.paths.model)
    return cluster.lines["algo-1"], codes["algo-1"], manifest


def test_a_job_of_200_members_ends_well_and_says_in_50_lines_that_they_joined(ended):
    lines, code, _ = ended
    states = [event for event in map(parse, lines) if isinstance(event, State)]
    joined = [(state.count, state.total) for state in states if state.name == "joined"]
    assert code == 0
    assert (joined[0], joined[-1]) == ((1, COUNT + 1), (COUNT + 1, COUNT + 1))
    assert len(joined) <= MAX_JOINED_LINES
    assert [state.count for state in states if state.name == "formed"] == [COUNT + 1]


def test_the_one_lost_member_of_200_is_named_and_no_other(ended):
    lines, _, _ = ended
    lost = [
        event for event in map(parse, lines) if isinstance(event, State) and event.name == "lost"
    ]
    assert [(state.host, state.detail) for state in lost] == [(LOST, "closed its connection")]


def test_the_manifest_lists_the_output_of_each_member_that_was_there_at_the_end(ended):
    manifest = ended[2]
    hosts = {file.name.partition("/")[0] for file in manifest.files}
    assert hosts == {f"algo-{number}" for number in range(2, COUNT + 2)} - {LOST}
