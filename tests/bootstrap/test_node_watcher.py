"""Which nodes are registered: asked through a socket, for as long as somebody wants to know."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from pathlib import Path

import pytest

from raysm.bootstrap.lifecycle import Failed, Node, NodesChanged
from raysm.bootstrap.node_watcher import UNUSABLE, NodeWatcher, await_first, nodes_socket, tell_nodes, watch
from raysm.errors import MissingDependency
from tests.support.own_process import run_apart

KNOWN = NodesChanged({"algo-1": Node("a", "10.0.0.1")})
NODES = '{"algo-1": {"id": "a", "address": "10.0.0.1"}}\n'


def test_a_line_is_written_for_each_change_and_no_other():
    answers = iter([{}, {}, {"algo-1": {"id": "a"}}, {"algo-1": {"id": "a"}}, {"algo-1": {"id": "b"}}])
    written = []
    with contextlib.suppress(StopIteration):
        watch(lambda: next(answers), written.append, lambda: None)
    assert written == ["{}\n", '{"algo-1": {"id": "a"}}\n', '{"algo-1": {"id": "b"}}\n']


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
    assert seen_twice(tmp_path / "nodes", NODES) == [KNOWN] * 2


@pytest.mark.parametrize("nonsense", ['{"algo-1": {"i', "{\n", '{"algo-1": {}}\n', "[]\n"])
def test_who_tells_a_torn_or_foreign_line_is_asked_again(tmp_path, nonsense):
    assert seen_twice(tmp_path / "nodes", NODES + nonsense) == [KNOWN] * 2


def test_who_is_not_there_at_first_is_asked_again(tmp_path):
    assert seen_twice(tmp_path / "nodes", NODES, begins_late=True) == [KNOWN] * 2


def test_a_ray_that_cannot_be_asked_is_a_failure_with_its_version_and_not_a_deadline(tmp_path):
    answer = json.dumps({UNUSABLE: "Ray 9.9 has no ray._raylet.GcsClient"}) + "\n"
    failed, _ = seen_twice(tmp_path / "nodes", answer)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, MissingDependency)
    assert str(failed.error) == "Ray 9.9 has no ray._raylet.GcsClient"


def test_heads_of_one_machine_tell_of_their_nodes_each_at_a_place_of_its_own():
    assert nodes_socket(Path("/tmp/ray"), 6379) != nodes_socket(Path("/tmp/ray"), 6380)


def test_who_asks_of_a_cluster_that_does_not_answer_is_left_to_come_again(tmp_path):
    path = tmp_path / "nodes"
    # What an earlier head has left there is no obstacle.
    path.touch()
    threading.Thread(target=tell_nodes, args=(path, "no address"), daemon=True).start()
    for _ in range(2):
        assert _told(path) == b""


def _told(path, limit_s=60):
    until = time.monotonic() + limit_s
    while True:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(limit_s)
            try:
                asking.connect(str(path))
            except OSError:
                # It listens in a moment.
                assert time.monotonic() < until
                time.sleep(0.01)
                continue
            return asking.recv(1)


def test_nobody_waits_for_the_first_node_of_a_cluster_that_is_gone():
    begun = time.monotonic()
    with pytest.raises(ConnectionRefusedError, match="no longer listens at 127.0.0.1:1"):
        await_first("127.0.0.1:1", 150)
    assert time.monotonic() - begun < 100
