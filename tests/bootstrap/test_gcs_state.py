"""What Ray's GCS tells: which nodes are registered, and which requests no instance can ever meet."""

import asyncio
import json
import math

import pytest

from raysm.bootstrap.gcs_state import UNUSABLE, NodeWatcher, UnmetRequests, find_unmet
from raysm.bootstrap.lifecycle import Failed, Node, NodesChanged
from raysm.errors import InvalidRequest, MissingDependency
from tests.support.own_process import run_apart

KNOWN = NodesChanged({"algo-1": Node("a", "10.0.0.1")})
LINE = '{"algo-1": {"id": "a", "address": "10.0.0.1"}}\n'


def seen_twice(path, text, begins_late=False):
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

        watcher.start(report)
        if begins_late:
            await asyncio.sleep(0)  # it has tried by now, and there was nobody
        async with await asyncio.start_unix_server(tell, path):
            watcher.start(report)
            await asyncio.wait_for(twice.wait(), 20)
            watcher.stop()
        return seen

    return run_apart(scenario)[:2]


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


NODES = [{"CPU": 1.0, "memory": 4e9, "host:algo-1": 1.0}, {"CPU": 1.0, "GPU": 1.0, "memory": 4e9}]


@pytest.mark.parametrize(
    "bundles", [[{"CPU": 1}], [{"GPU": 1, "CPU": 0.5}], [{"CPU": 1}, {"CPU": 1}], [{"host:algo-1": 1}], [{}]]
)
def test_a_request_that_fits_an_instance_is_met_sooner_or_later(bundles):
    assert find_unmet(NODES, [bundles]) == {}


@pytest.mark.parametrize(
    ("bundles", "request_text", "have"),
    [
        ([{"CPU": 64}], "num_cpus=64", "2 x (num_cpus=1)"),
        (
            [{"CPU": 1, "GPU": 2}],
            "num_cpus=1, num_gpus=2",
            "1 x (num_cpus=1, num_gpus=0), 1 x (num_cpus=1, num_gpus=1)",
        ),
        ([{"host:algo-3": 1}], "host:algo-3=1", "2 x (host:algo-3=0)"),
        ([{"CPU": 1}] * 3, "a placement group of 3 bundles, num_cpus=3 in all", "2 x (num_cpus=1)"),
    ],
)
def test_a_request_that_no_instance_can_meet_is_told_with_what_they_have(bundles, request_text, have):
    assert find_unmet(NODES, [bundles]) == {request_text: have}


def test_a_task_inside_of_a_placement_group_is_not_told_beside_its_group():
    inside = {"CPU_group_3ed02e45345f52b7393c6e1dcdf901000000": 1, "CPU": 1}
    assert find_unmet(NODES, [[inside]]) == {}


UNMET = {"num_cpus=64": "2 x (num_cpus=1)"}


def test_a_request_is_named_once_after_a_minute_and_fails_the_job_at_the_limit():
    requests = UnmetRequests(600.0)
    assert requests.take(UNMET, 100.0) == []
    assert requests.take(UNMET, 159.0) == []
    (line,) = requests.take(UNMET, 160.0)
    assert "no instance can ever run the Ray request num_cpus=64; the instances have 2 x (num_cpus=1)" in line
    assert "fails in 540 s" in line
    assert requests.take(UNMET, 165.0) == []
    with pytest.raises(InvalidRequest, match=r"num_cpus=64; the instances have 2 x \(num_cpus=1\).*ask for less"):
        requests.take(UNMET, 700.0)


def test_a_session_names_a_request_and_never_ends_by_it():
    requests = UnmetRequests(math.inf)
    requests.take(UNMET, 0.0)
    (line,) = requests.take(UNMET, 1e6)
    assert "num_cpus=64" in line
    assert "fails" not in line
