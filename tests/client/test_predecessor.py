"""Only one job at a time has a state: who goes on with it waits for the one before, or is refused."""

import pytest

from raysm.client.job.handle import attach
from raysm.client.submit import submit
from raysm.errors import InvalidRequest
from raysm.request import Cluster, Limits, Script
from tests.support.client_jobs import COMPLETED, EXCEEDED
from tests.support.sagemaker import refusal

ONE = Cluster("ml.m5.large")


def send(remote, script, **options):
    return submit(Script(str(script)), cluster=ONE, on=remote.service, name="task", **options)


def states(remote):
    return [call["CheckpointConfig"]["S3Uri"] for call in remote.sagemaker.sent]


@pytest.mark.parametrize("secondary", ["Starting", "Interrupted"])
def test_a_state_that_a_running_job_writes_is_not_gone_on_with(remote, script, secondary):
    first = send(remote, script)
    remote.sagemaker.jobs[first.name]["answer"]["SecondaryStatus"] = secondary
    before = len(remote.s3.calls)
    with pytest.raises(InvalidRequest, match=rf"{first.name} is {secondary}.*raysm stop {first.name}"):
        send(remote, script, resume=True)
    assert len(remote.sagemaker.sent) == 1
    assert not [name for name, _ in remote.s3.calls[before:] if name == "put_object"], "nothing was uploaded"


@pytest.mark.parametrize(
    "ending",
    [{"SecondaryStatus": "Uploading"}, {"TrainingJobStatus": "Stopping", "SecondaryStatus": "MaxRuntimeExceeded"}],
)
def test_a_job_that_is_just_ending_is_waited_for_and_that_is_said(remote, script, ending, caplog):
    stopped = {"TrainingJobStatus": "Stopped", "SecondaryStatus": "Stopped"}
    remote.sagemaker.script = [[ending, {}, {}, stopped]]
    first = send(remote, script)
    second = send(remote, script, resume=True)
    assert states(remote)[0] == states(remote)[1]
    assert attach(first.name, remote.service).describe().status == "Stopped"
    assert second.name != first.name
    assert f"waiting until {first.name}" in caplog.text
    assert caplog.text.count("waiting until") == 1


def test_a_predecessor_that_has_ended_or_was_deleted_is_not_waited_for(remote, script):
    first = send(remote, script)
    remote.sagemaker.end(first.name, "Failed")
    second = send(remote, script, resume=True)
    del remote.sagemaker.jobs[second.name]
    send(remote, script, resume=True)
    assert len(set(states(remote))) == 1


def test_a_checkpoint_uri_that_a_running_job_of_the_task_writes_is_not_shared(remote, script):
    first = send(remote, script, checkpoint_uri="s3://mine/ck")
    send(remote, script, checkpoint_uri="s3://mine/other")
    with pytest.raises(InvalidRequest, match=f"{first.name} is Starting.*checkpoint_uri"):
        send(remote, script, checkpoint_uri="s3://mine/ck/")


def test_the_follow_up_of_the_predecessor_is_its_successor_in_the_state(remote, script):
    remote.sagemaker.script = [[EXCEEDED]]
    first = send(remote, script, limits=Limits(max_restarts=1))
    first.chain.ended(send=True)
    assert first.name.endswith("-r1")
    with pytest.raises(InvalidRequest, match=f"{first.name} is Starting"):
        send(remote, script, resume=True)


def test_no_follow_up_is_sent_once_another_job_has_gone_on_with_the_state(remote, script, caplog):
    remote.sagemaker.script = [[EXCEEDED]]
    first = send(remote, script, limits=Limits(max_restarts=1))
    second = send(remote, script, resume=True)
    assert first.wait(60) == "Stopped"
    assert [call["TrainingJobName"] for call in remote.sagemaker.sent] == [first.name, second.name]
    assert f"{second.name} continues with its state" in caplog.text


def test_a_follow_up_is_sent_where_the_records_cannot_be_read(remote, script):
    remote.sagemaker.script = [[EXCEEDED], [COMPLETED]]
    first = send(remote, script, limits=Limits(max_restarts=1))
    remote.fail("list_objects_v2", refusal("AccessDenied", "no"))
    assert first.wait(60) == "Completed"
    assert len(remote.sagemaker.sent) == 2
