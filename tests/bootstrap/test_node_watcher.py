"""Which nodes are registered: asked in a child process, for as long as somebody wants to know."""

import asyncio
import json
import os
import sys
import time

import pytest

from raysm.bootstrap.children import Children
from raysm.bootstrap.lifecycle import Failed, Node, NodesChanged
from raysm.bootstrap.node_watcher import UNUSABLE, NodeWatcher, await_first, watch
from raysm.errors import MissingDependency
from tests.support.own_process import run_apart

KNOWN = NodesChanged({"algo-1": Node("a", "10.0.0.1")})
NODES = '{"algo-1": {"id": "a", "address": "10.0.0.1"}}'


def test_a_line_is_written_for_each_change_and_no_other():
    answers = iter([{}, {}, {"algo-1": {"id": "a"}}, {"algo-1": {"id": "a"}}, {"algo-1": {"id": "b"}}])
    written = []
    try:
        watch(lambda: next(answers), written.append, poll_s=0)
    except StopIteration:
        pass
    assert written == ["{}\n", '{"algo-1": {"id": "a"}}\n', '{"algo-1": {"id": "b"}}\n']


def seen_twice(code, kind=Children):
    """Return what a watcher reports until it has done so twice, when its child runs ``code``."""

    async def scenario():
        children = kind()
        watcher = NodeWatcher(children, [sys.executable, "-S", "-c", code, ""], os.environ)
        seen = []
        twice = asyncio.Event()

        def report(event):
            seen.append(event)
            if len(seen) == 2:
                twice.set()

        watcher.start(report)
        watcher.start(report)
        await asyncio.wait_for(twice.wait(), 20)
        watcher.stop()
        await children.end_all(0)
        children.close()
        return seen

    return run_apart(scenario)[:2]


def test_changes_are_reported_and_a_child_that_dies_is_asked_again():
    assert seen_twice(f"print({NODES!r}, flush=True)") == [KNOWN] * 2


@pytest.mark.parametrize("nonsense", ['{"algo-1": {"i', "{\n", '{"algo-1": {}}\n', "[]\n"])
def test_a_child_that_writes_a_torn_or_foreign_line_is_asked_again(nonsense):
    code = f"print({NODES!r}); print({nonsense!r}, end='', flush=True)"
    assert seen_twice(code) == [KNOWN] * 2


def test_a_child_that_cannot_be_started_at_first_is_started_again():
    class Failing(Children):
        failures = 0

        def start(self, *command, **options):
            if self.failures < 2:
                self.failures += 1
                raise BlockingIOError("no process can be made now")
            return super().start(*command, **options)

    assert seen_twice(f"print({NODES!r}, flush=True)", Failing) == [KNOWN] * 2


def test_a_ray_that_cannot_be_asked_is_a_failure_with_its_version_and_not_a_deadline():
    answer = json.dumps({UNUSABLE: "Ray 9.9 has no ray._raylet.GcsClient"})
    failed, _ = seen_twice(f"print({answer!r}, flush=True)")
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, MissingDependency)
    assert str(failed.error) == "Ray 9.9 has no ray._raylet.GcsClient"


def test_nobody_waits_for_the_first_node_of_a_cluster_that_cannot_be_asked():
    begun = time.monotonic()
    await_first("no address", 150)
    assert time.monotonic() - begun < 100
