"""What is seen of a run, and where its finished blocks are found again."""

from dataclasses import replace

import numpy as np
import pytest

from raysm.request import Similarity
from raysm.workloads.similarity.tasks.parts import Part
from tests.support.dense_rows import kinds_of_rows
from tests.support.similarity import run_of


@pytest.fixture
def run(tmp_path):
    return run_of(kinds_of_rows(rows=20)["float32"], tmp_path, top_k=3)


def part(seconds=1.0, **peaks):
    return Part(arrays={"keys": np.arange(3)}, peaks=peaks, seconds=seconds, engines=("int8 AMX",))


def test_a_block_is_found_again_by_a_run_of_the_same_request_alone(run):
    run.record("topk").save("a tile", part())
    assert "a tile" in run.record("topk")
    np.testing.assert_array_equal(run.record("topk").load("a tile").arrays["keys"], np.arange(3))
    others = (replace(run, workload=Similarity(top_k=4)), replace(run, digests={"matrix": "b" * 64}))
    assert not any("a tile" in other.record("topk") for other in others)
    assert "a tile" not in run.record("topk of shards")
