"""For whom a Batch job waits."""

import pytest

from raysm.local.server.batch.dependencies import awaited
from raysm.local.server.batch.records import BatchJob


def job(name, depends=(), status="RUNNING", **fields):
    request = {"dependsOn": list(depends)}
    return BatchJob(
        id=name, kind="job", name=name, region="r", queue="q", request=request, created_s=0, status=status, **fields
    )


def awaits(one, *others):
    return awaited(one, {other.id: other for other in others}.get)


def test_a_job_that_names_no_other_waits_for_none():
    assert awaits(job("a")) is False


@pytest.mark.parametrize(("status", "waits"), [("RUNNING", True), ("PENDING", True), ("SUCCEEDED", False)])
def test_a_job_waits_until_the_others_have_succeeded(status, waits):
    depends = [{"jobId": "b"}, {"jobId": "arn:aws:batch:r:1:job/c"}]
    assert awaits(job("a", depends), job("b", status="SUCCEEDED"), job("c", status=status)) is waits


def test_a_job_whose_other_failed_or_is_gone_never_begins():
    assert awaits(job("a", [{"jobId": "b"}]), job("b", status="FAILED")) is None
    assert awaits(job("a", [{"jobId": "b"}])) is None


def test_the_children_of_a_sequential_array_go_one_after_the_other():
    sequential = [{"type": "SEQUENTIAL"}]
    first = job("x:0", sequential, parent="x", index=0, size=3)
    assert awaits(first) is False
    second = job("x:1", sequential, parent="x", index=1, size=3)
    assert awaits(second, first) is True
    assert awaits(second, job("x:0", status="SUCCEEDED")) is False


def test_each_child_waits_for_the_one_of_its_own_index():
    child = job("x:1", [{"type": "N_TO_N", "jobId": "y"}], parent="x", index=1, size=2)
    assert awaits(child, job("y:0"), job("y:1", status="SUCCEEDED")) is False
    assert awaits(child, job("y:0", status="SUCCEEDED"), job("y:1")) is True
