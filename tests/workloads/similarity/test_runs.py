"""What is seen of a run, and where its finished blocks are found again."""

from dataclasses import replace

import numpy as np
import pytest

from raysm.contract.events import Progress, State
from raysm.request import Similarity
from raysm.workloads.similarity.runs import Report
from raysm.workloads.similarity.tasks.parts import Part
from tests.support.dense_rows import kinds_of_rows
from tests.support.similarity import run_of


@pytest.fixture
def run(tmp_path):
    return run_of(kinds_of_rows(rows=20)["float32"], tmp_path, top_k=3)


def part(seconds=1.0, **peaks):
    return Part(arrays={"keys": np.arange(3)}, peaks=peaks, seconds=seconds, engines=("int8 AMX",))


def test_parts_are_added_up_and_of_memory_the_most_counts():
    report = Report(emit_event=lambda event: None)
    for one in (part(0.5, one=5, two=9), part(0.25, one=7)):
        report.add(one)
    assert (report.task_seconds, dict(report.peaks), report.engines) == (0.75, {"one": 7, "two": 9}, {"int8 AMX"})


def test_a_phase_that_is_entered_twice_counts_twice_and_one_that_fails_not_at_all():
    report = Report(emit_event=lambda event: None)
    for _ in range(2):
        with report.phase("prepare"):
            pass
    with pytest.raises(KeyError), report.phase("similarity"):
        raise KeyError("a block")
    assert list(report.phases_s) == ["prepare"]


def test_gathering_is_announced_with_its_rows():
    events = []
    with Report(emit_event=events.append).gathering(20) as throttle:
        throttle.reach(20)
    assert isinstance(events[0], State)
    assert events[0].name == "gathering"
    assert [(event.done, event.total, event.unit) for event in events if isinstance(event, Progress)] == [
        (0, 20, "rows"),
        (20, 20, "rows"),
    ]


def test_a_block_is_found_again_by_a_run_of_the_same_request_alone(run):
    run.record("topk").save("a tile", part())
    assert "a tile" in run.record("topk")
    np.testing.assert_array_equal(run.record("topk").load("a tile").arrays["keys"], np.arange(3))
    others = (
        replace(run, workload=Similarity(top_k=4)),
        replace(run, digests={"matrix": "b" * 64}),
    )
    assert not any("a tile" in other.record("topk") for other in others)
    assert "a tile" not in run.record("topk of shards")


def test_rows_without_an_id_column_have_no_other_names(run):
    assert run.ids() is None
