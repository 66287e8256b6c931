"""A job and its follow-ups as one, and jobs that go on with the state of another."""

import concurrent.futures

import pytest

from raysm.core.client.job.chain import Chain, next_name
from raysm.core.client.job.description import Status, read
from raysm.core.client.job.handle import attach
from raysm.core.client.submit import submit
from raysm.core.protocol.job_api import TRAINING
from raysm.core.protocol.names import FIRST_TAG, MAX_RESTARTS_TAG, NOT_KEPT, RESTART_TAG
from raysm.core.request import Cluster, Limits
from raysm.errors import CredentialsExpired, InvalidRequest, JobFailed, JobStopped
from raysm.features.script.request import Script
from raysm.features.training.request import TorchScript
from tests.support.client_jobs import COMPLETED, EXCEEDED, long_job
from tests.support.sagemaker import refusal

TAGS = {MAX_RESTARTS_TAG: "2"}
SECOND = {**TAGS, FIRST_TAG: "task", RESTART_TAG: "1"}


def ended(name="task", secondary="MaxRuntimeExceeded", **fields):
    answer = {
        "TrainingJobName": name,
        "TrainingJobArn": f"arn:aws:sagemaker:us-east-1:000000000000:training-job/{name}",
        "TrainingJobStatus": "Stopped",
        "SecondaryStatus": secondary,
        "CheckpointConfig": {"S3Uri": "s3://bucket/state"},
        "ResourceConfig": {
            "InstanceCount": 2,
            "SelectedInstanceType": "ml.m5.large",
            "SelectedInstanceCount": 2,
        },
    }
    return read(
        TRAINING, {key: item for key, item in (answer | fields).items() if item is not None}
    )


@pytest.mark.parametrize(
    ("description", "tags", "name"),
    [
        (ended(), TAGS, "task-r1"),
        (ended("task-r1"), SECOND, "task-r2"),
        (ended("task-r2"), {**SECOND, RESTART_TAG: "2"}, None),
        (ended(), {}, None),
        (ended(secondary="Stopped"), TAGS, None),
        (ended(CheckpointConfig=None), TAGS, None),
    ],
    ids=[
        "first",
        "second",
        "as often as it may",
        "never",
        "stopped by somebody",
        "without a state",
    ],
)
def test_the_next_name_follows_from_the_first_jobs_while_there_may_be_one(description, tags, name):
    assert next_name(description, tags) == name


def test_a_job_that_ran_too_long_goes_on_from_its_checkpoints(remote, script):
    job = long_job(remote, script)
    remote.sagemaker.script.append([COMPLETED])
    first = job.name
    assert job.wait(60) is Status.COMPLETED
    names = [call["TrainingJobName"] for call in remote.sagemaker.sent]
    assert names == [first, f"{first}-r1", f"{first}-r2"]
    assert job.name == names[-1]
    calls = [
        {key: item for key, item in call.items() if key not in ("TrainingJobName", "Tags")}
        for call in remote.sagemaker.sent
    ]
    assert calls[0] == calls[1] == calls[2]


def test_no_more_follow_ups_than_allowed_are_sent(remote, script):
    job = long_job(remote, script)
    remote.sagemaker.script.append([EXCEEDED])
    with pytest.raises(JobFailed, match="MaxRuntimeExceeded.*max_restarts"):
        job.result(60)
    assert len(remote.sagemaker.sent) == 3
    assert not job.cancelled()


def test_two_watchers_send_one_follow_up(remote, script):
    job = long_job(remote, script, restarts=1)
    remote.sagemaker.script.append([{}, {}, COMPLETED])
    other = attach(job.name, remote.service)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert [item.result() for item in [pool.submit(each.wait, 5) for each in (job, other)]] == [
            "Completed"
        ] * 2
    assert len(remote.sagemaker.sent) == 2


def test_a_job_that_is_cancelled_between_two_runs_has_no_further_one(remote, script):
    job = long_job(remote, script)
    assert not job.done()
    assert job.cancel()
    # The run that is known has ended: to stop it would be refused.
    assert remote.sagemaker.stopped == []
    assert job.wait(60) is Status.STOPPED
    assert job.cancelled()
    assert len(remote.sagemaker.sent) == 1
    with pytest.raises(JobStopped):
        job.result()


@pytest.mark.parametrize(
    "look", [lambda job: job.wait(60), lambda job: list(job.lines(follow=True))]
)
def test_who_waits_with_credentials_that_expire_is_told_that_the_job_goes_on_and_how_to_find_it(
    remote, job, look
):
    remote.fail("describe_training_job", refusal("ExpiredTokenException", "expired"), after=1)
    with pytest.raises(CredentialsExpired, match=f"log in again.*raysm logs -f {job.name}"):
        look(job)


def test_a_deleted_job_is_left_out_of_the_descriptions_of_its_chain(remote, script):
    job = long_job(remote, script)
    remote.sagemaker.script.append([COMPLETED])
    first = job.name
    job.wait(60)
    chain = Chain(job.name, service=remote.service, api=TRAINING, tags=job.tags)
    assert [one.name for one in chain.descriptions()] == [first, f"{first}-r1", f"{first}-r2"]
    del remote.sagemaker.jobs[first]
    chain = Chain(job.name, service=remote.service, api=TRAINING, tags=job.tags)
    assert chain.first == first
    assert [one.name for one in chain.descriptions()] == [f"{first}-r1", f"{first}-r2"]


def test_a_follow_up_that_another_process_sends_after_the_cancellation_is_stopped(remote, script):
    job = long_job(remote, script, restarts=1)
    chain = Chain(job.name, service=remote.service, api=TRAINING)
    assert not chain.ended(send=False)
    remote.sagemaker.script.append([])
    other = Chain(job.name, service=remote.service, api=TRAINING)
    assert not other.ended(send=True)
    chain.is_cancelled = True
    assert chain.ended(send=True)
    assert remote.sagemaker.stopped == [f"{job.name}-r1"]


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
    with pytest.raises(
        InvalidRequest, match=rf"{first.name} is {secondary}.*raysm stop {first.name}"
    ):
        send(remote, script, resume=True)
    assert len(remote.sagemaker.sent) == 1
    assert not [name for name, _ in remote.s3.calls[before:] if name == "put_object"], (
        "nothing was uploaded"
    )


@pytest.mark.parametrize(
    "ending",
    [
        {"SecondaryStatus": "Uploading"},
        {"TrainingJobStatus": "Stopping", "SecondaryStatus": "MaxRuntimeExceeded"},
    ],
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


def test_a_resume_says_that_the_earlier_job_could_not_keep_all_of_its_checkpoints(
    remote, script, caplog
):
    first = send(remote, script)
    remote.sagemaker.end(first.name, "Stopped")
    second = send(remote, script, resume=True)
    assert NOT_KEPT not in caplog.text
    uploading = {
        "Status": "Uploading",
        "StatusMessage": f"Uploading generated training model; {NOT_KEPT}: no room",
    }
    transitions = [uploading, {"Status": "Stopped", "StatusMessage": "Training job stopped"}]
    remote.sagemaker.end(second.name, "Stopped", SecondaryStatusTransitions=transitions)
    send(remote, script, resume=True)
    assert f"{second.name}: {NOT_KEPT}: no room" in caplog.text


def test_a_resume_says_that_there_is_nothing_to_resume_or_that_instances_have_no_state(
    remote, script, caplog
):
    def trained(name, count, resume):
        workload = TorchScript(str(script), in_state=True)
        cluster = Cluster(instance_type="ml.m5.large", count=count)
        job = submit(workload, cluster=cluster, name=name, resume=resume, on=remote.service)
        remote.sagemaker.end(job.name, "Stopped")
        return job.name

    first = trained("fit-two", 2, False)
    trained("fit-tow", 2, True)
    said = (
        "fit-tow has no earlier job to resume: it starts from the beginning; did you mean fit-two?"
    )
    assert caplog.text.count("has no earlier job") == caplog.text.count(said) == 1
    trained("fit-two", 3, True)
    assert (
        f"{first} ran on 2 instances, and this job has 3: the new ones find no state" in caplog.text
    )
    assert f"{first} left no state to resume: the new job starts from the beginning" in caplog.text


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
