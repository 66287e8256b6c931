"""A job's payload in S3: its upload, its parts, its token and its deletion."""

import pytest

from raysm.core.client.job.handle import attach
from raysm.core.client.job.removal import check, descriptions, remove
from raysm.core.client.storage.payload import remove_payload
from raysm.core.client.storage.places import shared_mark
from raysm.core.client.storage.s3 import Storage
from raysm.core.client.submit import prepare, submit
from raysm.core.protocol.job_api import TRAINING
from raysm.core.protocol.payload import JOB, TOKEN
from raysm.core.request import Cluster
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script
from tests.support.client_jobs import COMPLETED, M5, long_job
from tests.support.sagemaker import refusal


@pytest.fixture
def send(remote, script):
    def sent(name, shares=True):
        cluster = Cluster("ml.m5.large")
        return prepare(
            Script(str(script)), cluster=cluster, on=remote.service, job_name=name, shares=shares
        ).send()

    return sent


def keys(remote, part):
    listed = remote.s3.list_objects_v2(Bucket=remote.service.bucket.name).get("Contents", ())
    return [item["Key"] for item in listed if part in item["Key"]]


def test_of_two_jobs_the_second_sends_its_own_part_alone(remote, send):
    send("first")
    shared = keys(remote, "/shared/")
    send("second")
    assert sorted(key.rpartition("/")[2] for key in keys(remote, "/second/")) == [JOB, TOKEN]
    assert keys(remote, "/shared/") == shared
    assert len([key for key in shared if key.endswith("raysm.zip")]) == 1
    # Neither looked for nor sent again, but for the one question whether it is there.
    sent_again = [
        key for operation, key in remote.s3.calls if operation != "head_object" and key in shared
    ]
    assert len(sent_again) <= len(shared)


def test_at_the_end_the_own_part_goes_and_the_shared_one_stays(remote, send):
    send("first")
    remove_payload(remote.service.describe(TRAINING, "first"), "first", remote.service)
    assert not keys(remote, "/payloads/")
    assert keys(remote, "/shared/")


def test_what_somebody_removed_is_sent_again(remote, send):
    send("first")
    for key in keys(remote, "/shared/"):
        remote.s3.delete_object(Bucket=remote.service.bucket.name, Key=key)
    send("second")
    assert keys(remote, "/shared/")


def payload(remote, name):
    return Storage(remote.service).below(f"{remote.service.places.payload('default', name)}/")


@pytest.mark.parametrize(
    ("kind", "status"),
    [("training", "Completed"), ("training", "Failed"), ("processing", "Stopped")],
)
def test_the_payload_of_a_job_that_has_ended_is_removed_by_whoever_looks_at_it(
    remote, script, kind, status
):
    job = submit(Script(str(script)), cluster=M5, on=remote.service, kind=kind)
    assert not job.done()
    assert payload(remote, job.name)
    remote.sagemaker.end(job.name, status)
    assert attach(job.name, remote.service).done()
    assert payload(remote, job.name) == []


def test_nothing_else_of_the_bucket_is_touched(remote, script):
    jobs = [
        submit(Script(str(script)), cluster=M5, on=remote.service, name=name) for name in ("a", "a")
    ]
    Storage(remote.service).write(f"{jobs[0].outputs}/model/x", b"1")
    remote.sagemaker.end(jobs[0].name, "Completed")
    before = {item.uri for item in Storage(remote.service).below(remote.service.places.root)}
    jobs[0].wait(60)
    after = {item.uri for item in Storage(remote.service).below(remote.service.places.root)}
    assert {
        uri for uri in before - after if f"/payloads/default/{jobs[0].name}/" not in uri
    } == set()
    assert before - after
    assert payload(remote, jobs[1].name)


def test_the_follow_ups_of_a_job_find_its_payload_until_the_last_one_has_ended(remote, script):
    job = long_job(remote, script, restarts=2)
    remote.sagemaker.script.append([{}, COMPLETED])
    first = job.name
    while not job.chain.ended(send=True):
        assert payload(remote, first)
    assert len(remote.sagemaker.sent) == 3
    assert payload(remote, first) == []


def test_who_may_not_remove_it_still_learns_how_the_job_ended(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    remote.fail("delete_object", refusal("AccessDenied", "no"))
    assert job.wait(60) == "Completed"
    assert payload(remote, job.name)


def test_a_job_of_aws_is_not_removed_and_one_is_told_how_to(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    with pytest.raises(InvalidRequest, match=f"on AWS.*aws s3 rm .*{job.name}"):
        check(job, [])


def test_what_the_jobs_of_a_grid_share_goes_with_the_last_of_them(local, script):
    storage, names = Storage(local.service), ("row-1", "row-2")
    for name in names:
        prepare(Script(str(script)), on=local.service, job_name=name, shares=True).send()
        local.sagemaker.end(name, "Completed")
    shared = f"{local.service.places.root}/shared/"
    (prefix,) = {
        f"{shared}{item.name.partition('/')[0]}"
        for item in storage.below(shared)
        if "/" in item.name
    }
    remove(attach("row-1", local.service), descriptions(local.service))
    assert storage.size(shared_mark(prefix)) is not None
    remove(attach("row-2", local.service), descriptions(local.service))
    assert storage.below(shared) == []
