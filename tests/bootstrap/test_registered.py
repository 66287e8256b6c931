"""Which nodes are registered."""

import asyncio
import os
import sys

from raysm.bootstrap.children import Children
from raysm.bootstrap.registered import Node, Registry, watch


def test_a_line_is_written_for_each_change_and_no_other():
    answers = iter([{}, {}, {"algo-1": {"id": "a"}}, {"algo-1": {"id": "a"}}, {"algo-1": {"id": "b"}}])
    written = []
    try:
        watch(lambda: next(answers), written.append, poll_s=0)
    except StopIteration:
        pass
    assert written == ["{}\n", '{"algo-1": {"id": "a"}}\n', '{"algo-1": {"id": "b"}}\n']


def test_changes_are_reported_and_a_child_that_dies_is_asked_again():
    code = "import json; print(json.dumps({'algo-1': {'id': 'a', 'address': '10.0.0.1'}}), flush=True)"

    async def scenario():
        children = Children()
        registry = Registry(children, [sys.executable, "-S", "-c", code, ""], os.environ)
        seen = []
        twice = asyncio.Event()

        def changed(nodes):
            seen.append(nodes)
            if len(seen) == 2:
                twice.set()

        registry.start(changed)
        registry.start(changed)
        await asyncio.wait_for(twice.wait(), 20)
        registry.stop()
        await children.end_all(0)
        children.close()
        return seen

    assert asyncio.run(scenario())[:2] == [{"algo-1": Node("a", "10.0.0.1")}] * 2
