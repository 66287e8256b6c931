"""The token of a job."""

import pytest

from raysm.client.job.handle import token_of
from raysm.client.storage.payload import payload_uri
from raysm.client.storage.s3 import Storage
from raysm.errors import JobNotFound
from tests.support.client_jobs import COMPLETED, long_job


def test_it_is_the_one_of_the_jobs_payload(remote, job):
    stored = Storage(remote.service).read(f"{payload_uri(remote.sagemaker.sent[0])}token")
    assert token_of(job) == stored.decode()


def test_a_follow_up_has_the_first_jobs(remote, script):
    job = long_job(remote, script, restarts=1)
    remote.sagemaker.script.append([{}, {}, {}, {}, COMPLETED])
    first = token_of(job)
    while not job.name.endswith("-r1"):
        job.chain.ended(send=True)
    assert token_of(job) == first


def test_once_the_payload_is_gone_it_is_not_there(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    assert job.done()
    with pytest.raises(JobNotFound, match=f"the payload of {job.name} is not there any more, nor is its token"):
        token_of(job)
