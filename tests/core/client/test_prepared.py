"""Whatever goes wrong while a job is sent, the service has it and its handle is returned, or nothing is left of it."""

import pytest

from raysm.core.client.service import Service
from raysm.core.client.submit import MAX_LISTED, prepare, submit
from raysm.core.request import Security
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.script.request import Script
from tests.support.client_jobs import M5
from tests.support.crowd import Crowd
from tests.support.sagemaker import refusal


def test_a_refused_call_leaves_no_token_behind(remote, script):
    remote.fail("create_training_job", refusal("ResourceLimitExceeded", "0 instances"))
    with pytest.raises(ServiceError, match="Service Quotas"):
        submit(Script(str(script)), cluster=M5, on=remote.service)
    assert not [key for key in keys(remote) if key.endswith("/token")]


@pytest.mark.parametrize("kind", ["training", "processing"])
@pytest.mark.parametrize("code", ["ResourceInUse", "InternalFailure"])
def test_a_job_that_was_created_although_the_call_failed_is_sent(remote, script, code, kind):
    remote.fail(f"create_{kind}_job", refusal(code, "who knows"), done=True)
    job = submit(Script(str(script)), cluster=M5, on=remote.service, kind=kind)
    assert not job.done()
    assert [key for key in keys(remote) if key.endswith("/token")]


@pytest.mark.parametrize(
    ("error", "stays"), [("InternalFailure", True), ("ResourceLimitExceeded", False)]
)
def test_the_payload_of_a_job_that_may_be_sent_again_stays_until_that_is_settled(
    remote, script, error, stays
):
    remote.fail("create_training_job", refusal(error, "who knows"))
    with pytest.raises(ServiceError, match="who knows"):
        prepare(Script(str(script)), cluster=M5, on=remote.service).send(leaves_payload=True)
    assert bool([key for key in keys(remote) if key.endswith("/token")]) is stays


def test_an_upload_that_is_interrupted_leaves_no_token_behind(remote, script):
    remote.fail(
        "put_object",
        KeyboardInterrupt(),
        when=lambda call: call["Key"].endswith("/token"),
        done=True,
    )
    with pytest.raises(KeyboardInterrupt):
        submit(Script(str(script)), cluster=M5, on=remote.service)
    assert not [key for key in keys(remote) if "/payloads/" in key]


def test_a_job_whose_creation_is_interrupted_keeps_its_payload_until_it_is_stopped(remote, script):
    remote.fail("create_training_job", KeyboardInterrupt(), done=True)
    with pytest.raises(KeyboardInterrupt):
        submit(Script(str(script)), cluster=M5, on=remote.service)
    assert len(remote.sagemaker.jobs) == 1
    assert [key for key in keys(remote) if key.endswith("/token")]


def test_a_job_that_cannot_be_remembered_is_returned_nevertheless(remote, script, caplog):
    no_records = refusal("AccessDenied", "no records", "PutObject")
    remote.fail("put_object", no_records, when=lambda call: bool(remote.sagemaker.sent))
    job = submit(Script(str(script)), cluster=M5, on=remote.service)
    assert job.name in remote.sagemaker.jobs
    assert "is sent, but not remembered" in caplog.text


def test_a_key_of_another_region_is_refused(remote, script):
    security = Security(output_kms_key="arn:aws:kms:us-east-1:123456789012:key/k")
    with pytest.raises(InvalidRequest, match="key of us-east-1.* eu-west-1"):
        prepare(Script(str(script)), cluster=M5, on=remote.service, security=security)


def keys(fake):
    return [
        item["Key"]
        for item in fake.s3.list_objects_v2(Bucket=fake.service.bucket.name).get("Contents", ())
    ]


def test_the_payload_and_uploads_are_encrypted_with_the_key_of_the_outputs(
    remote, script, tmp_path
):
    (tmp_path / "x.csv").write_text("1")
    security = Security(output_kms_key="arn:aws:kms:eu-west-1:123456789012:key/k")
    submit(
        Script(str(script)),
        cluster=M5,
        on=remote.service,
        security=security,
        inputs={"x": tmp_path / "x.csv"},
    )
    data = [key for key in keys(remote) if not key.endswith(".json") or "/payloads/" in key]
    for key in data:
        head = remote.s3.head_object(Bucket=remote.service.bucket.name, Key=key)
        assert head["SSEKMSKeyId"] == security.output_kms_key, key


def test_a_plain_submit_lists_few_of_a_million_inputs_and_is_not_remembered_as_done(
    remote, script, caplog
):
    crowd = Crowd(1_300_000, behind=remote.s3)
    service = Service(
        remote.service.target,
        clients=lambda name: crowd if name == "s3" else remote.clients[name],
        polling=remote.service.polling,
    )
    with caplog.at_level("INFO", logger="raysm"):
        submit(Script(str(script)), cluster=M5, on=service, inputs={"x": "s3://crowd/pictures/"})
    # A call lists 1,000 objects; by one more it is known that there are more.
    assert crowd.lists <= MAX_LISTED // 1000 + 1
    assert (
        f"not remembered for if_done: its inputs are more than {MAX_LISTED:,} objects"
        in caplog.text
    )
