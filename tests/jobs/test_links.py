"""Rows that are shared out take over throttled links what the model says of the links, and travel once."""

import pytest

from raysm.workloads.similarity.sizing.spread import ring_share
from tests.benchmarks.links import measured, model

# Cheaper, and without what Ray does: ``test_links_are_busy_though_instances_do_not_keep_in_step``.
pytestmark = [pytest.mark.long, pytest.mark.namespace, pytest.mark.timeout(600)]

INSTANCES, MEGABITS, ROWS, COLUMNS = 3, 20, 1500, 8192

AT_LEAST = 0.7
"""Of what a link takes for the rows: some come before the comparing begins. How much longer it is than the model says,
``tests/benchmarks/links.py`` prints: other work on these cores changes that, and no link."""


def test_over_throttled_links_a_similarity_takes_what_the_links_take_and_sends_each_chunk_once(tmp_path):
    free, throttled = measured(tmp_path, INSTANCES, [MEGABITS], ROWS, COLUMNS)
    _, travel, _ = model(INSTANCES, MEGABITS, throttled, ROWS, COLUMNS, free)
    assert throttled["seconds"] > AT_LEAST * travel
    # Each chunk once, though links are slow.
    assert throttled["rows"] == ROWS * COLUMNS * 4 * ring_share(INSTANCES)
    assert throttled["left"] < 1.3 * throttled["rows"]
