"""The fake that users test their own code with."""

import pytest

import raysm
from raysm.core.client.job.description import Status
from raysm.testing import Answer


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.py").write_text("raise SystemExit('never run')")
    return raysm.Script(str(tmp_path / "train.py"))


def test_a_function_is_called_at_once_and_its_value_is_the_result(fake):
    assert raysm.submit(raysm.Function(lambda x: x * x, 3), on=fake).result(timeout=10) == 9


def test_what_a_function_raises_is_raised_by_the_result(fake):
    job = raysm.submit(raysm.Function(lambda: {}["key"]), on=fake)
    with pytest.raises(KeyError) as caught:
        job.result(timeout=10)
    assert isinstance(caught.value.__cause__, raysm.JobFailed)


def test_a_script_ends_as_the_test_says_and_is_never_run(fake, script):
    fake.answer("script", Answer(files={"model.txt": b"weights"}, lines=["epoch 1", "epoch 2"]))
    fake.answer("script", Answer(status="Failed", reason="ValueError: no such layer"))
    good, bad = raysm.submit(script, on=fake), raysm.submit(script, on=fake)
    assert (good.result(timeout=10) / "model.txt").read_bytes() == b"weights"
    assert [line.text for line in good.lines()] == ["epoch 1", "epoch 2"]
    assert bad.status is Status.FAILED
    with pytest.raises(raysm.JobFailed, match="no such layer"):
        bad.result(timeout=10)


def test_without_an_answer_a_job_completes_and_leaves_nothing(fake, script):
    assert raysm.submit(script, on=fake).result(timeout=10) is None


def test_the_plans_are_there_to_be_looked_at(fake, script):
    raysm.submit(script, on=fake, cluster=raysm.Cluster("ml.c5.4xlarge", count=10))
    assert fake.submitted[0].request["ResourceConfig"]["InstanceCount"] == 10


def test_a_request_that_cannot_be_is_refused_as_by_the_service(fake, script):
    with pytest.raises(ValueError, match="ml.c5.4xlarge"):
        raysm.submit(script, on=fake, cluster=raysm.Cluster("ml.c5.4xlarg"))


def test_a_job_is_found_again_by_its_name(fake, script):
    name = raysm.submit(script, on=fake).name
    assert raysm.attach(name, on=fake).status is Status.COMPLETED


def test_a_processing_job_ends_too(fake, script):
    fake.answer("script", Answer(files={"x": b"1"}))
    job = raysm.submit(script, on=fake, kind="processing")
    assert (job.result(timeout=10) / "x").read_bytes() == b"1"


def test_an_answer_for_a_kind_that_is_none_is_refused(fake):
    with pytest.raises(ValueError, match="'dance'"):
        fake.answer("dance", Answer())
