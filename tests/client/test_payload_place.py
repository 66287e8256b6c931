"""The payload holds source and token: it goes once the job, and the last of its follow-ups, has ended."""

import pytest

from raysm.client.job.handle import attach
from raysm.client.storage.payload import payload_uri, remove_payload
from raysm.client.storage.s3 import Storage
from raysm.client.submit import prepare, submit
from raysm.request import Script
from tests.support.client_jobs import COMPLETED, M5, long_job
from tests.support.sagemaker import refusal


def payload(remote, name):
    return Storage(remote.service).below(f"{remote.service.places.payload('default', name)}/")


@pytest.mark.parametrize("status", ["Completed", "Failed", "Stopped"])
@pytest.mark.parametrize("kind", ["training", "processing"])
def test_the_payload_of_a_job_that_has_ended_is_removed_by_whoever_looks_at_it(remote, script, kind, status):
    job = submit(Script(str(script)), cluster=M5, on=remote.service, kind=kind)
    assert not job.done()
    assert payload(remote, job.name)
    remote.sagemaker.end(job.name, status)
    assert attach(job.name, remote.service).done()
    assert payload(remote, job.name) == []


def test_nothing_else_of_the_bucket_is_touched(remote, script):
    jobs = [submit(Script(str(script)), cluster=M5, on=remote.service, name=name) for name in ("a", "a")]
    Storage(remote.service).write(f"{jobs[0].outputs}/model/x", b"1")
    remote.sagemaker.end(jobs[0].name, "Completed")
    before = {item.uri for item in Storage(remote.service).below(remote.service.places.root)}
    jobs[0].wait(60)
    after = {item.uri for item in Storage(remote.service).below(remote.service.places.root)}
    assert {uri for uri in before - after if f"/payloads/default/{jobs[0].name}/" not in uri} == set()
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


def test_it_is_looked_for_once(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    job.wait(60)
    calls = len(remote.s3.calls)
    assert job.done()
    assert len(remote.s3.calls) == calls


@pytest.mark.parametrize(
    "uri",
    [
        "s3://mine/raysm/",
        "s3://mine/raysm/payloads/default/another-job/",
        "s3://mine/data/payloads/default/a-job/",
        "s3://mine/raysm/payloads/default/a-job/x/a-job/",
    ],
)
def test_what_others_send_in_a_channel_of_this_name_is_theirs(remote, uri):
    channel = {"ChannelName": "raysm", "DataSource": {"S3DataSource": {"S3Uri": uri}}}
    remove_payload({"InputDataConfig": [channel]}, "a-job", remote.service)
    assert remote.s3.calls == []


def test_where_the_payload_lies_is_told_by_the_call_of_either_api_and_by_no_job_of_others(remote, script):
    for kind in ("training", "processing"):
        ready = prepare(Script(str(script)), cluster=M5, on=remote.service, kind=kind)
        assert payload_uri(ready.plan.request) == f"{remote.service.places.payload('default', ready.request.name)}/"
    assert payload_uri({}) is None
