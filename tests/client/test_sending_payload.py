"""What a payload costs: all of it for one job, two small objects for each of many that share the rest."""

import pytest

from raysm.client.job.handle import attach
from raysm.client.storage.payload import payload_uri, remove_payload, upload_payload
from raysm.client.storage.s3 import Storage
from raysm.client.submit import prepare
from raysm.contract.job_api import TRAINING
from raysm.contract.payload import JOB, TOKEN
from raysm.contract.seal import DIGESTS
from raysm.request import Cluster, Script
from tests.support.sagemaker import fake_aws


@pytest.fixture
def fake():
    with fake_aws() as fake:
        yield fake


@pytest.fixture
def send(fake, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")

    def sent(name, shares=True):
        cluster = Cluster("ml.m5.large")
        return prepare(Script(str(script)), cluster=cluster, on=fake.service, job_name=name, shares=shares).send()

    return sent


def keys(fake, part):
    listed = fake.s3.list_objects_v2(Bucket=fake.service.bucket.name).get("Contents", ())
    return [item["Key"] for item in listed if part in item["Key"]]


def test_of_two_jobs_the_second_sends_its_own_part_alone(fake, send):
    send("first")
    shared = keys(fake, "/shared/")
    send("second")
    assert sorted(key.rpartition("/")[2] for key in keys(fake, "/second/")) == [JOB, TOKEN]
    assert keys(fake, "/shared/") == shared
    assert len([key for key in shared if key.endswith("raysm.zip")]) == 1
    # Neither looked for nor sent again, but for the one question whether it is there.
    sent_again = [key for operation, key in fake.s3.calls if operation != "head_object" and key in shared]
    assert len(sent_again) <= len(shared)


def test_a_job_brings_both_parts_and_its_own_tells_which_job_it_is(fake, send):
    send("first")
    (call,) = fake.sagemaker.sent
    uris = {each["ChannelName"]: each["DataSource"]["S3DataSource"]["S3Uri"] for each in call["InputDataConfig"]}
    assert "/raysm/shared/" in uris["raysm"]
    assert uris["raysm-job"].endswith("/first/")
    assert payload_uri(call) == uris["raysm-job"]


def test_at_the_end_the_own_part_goes_and_the_shared_one_stays(fake, send):
    send("first")
    remove_payload(fake.service.describe(TRAINING, "first"), "first", fake.service)
    assert not keys(fake, "/payloads/")
    assert keys(fake, "/shared/")


def test_what_somebody_removed_is_sent_again(fake, send):
    send("first")
    for key in keys(fake, "/shared/"):
        fake.s3.delete_object(Bucket=fake.service.bucket.name, Key=key)
    send("second")
    assert keys(fake, "/shared/")


def test_a_job_by_itself_shares_nothing(fake, send):
    send("alone", shares=False)
    (call,) = fake.sagemaker.sent
    assert [each["ChannelName"] for each in call["InputDataConfig"]] == ["raysm"]
    assert not keys(fake, "/shared/")
    assert attach("alone", fake.service)


def test_what_is_shared_with_nobody_lies_below_the_jobs_own_prefix_alone(fake, tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    prepared = prepare(Script(str(tmp_path / "train.py")), cluster=Cluster("ml.m5.large"), on=fake.service)
    storage, own = Storage(fake.service), f"s3://{fake.service.bucket.name}/own"
    storage.ensure_bucket(fake.service.bucket, fake.service.region)
    upload_payload(prepared.contents, own, None, storage)
    assert {item.name for item in storage.folder(own)} == {*prepared.contents.files, DIGESTS}
    assert keys(fake, "") == keys(fake, "own/")
