"""What lay in S3 lies there after the next start, but for the payloads of jobs that have ended."""

import logging

import pytest

from raysm.contract.names import LOCAL_BUCKET, MAX_RESTARTS_TAG, RESTART_TAG
from raysm.local.server import s3_snapshot
from raysm.local.server.moto_services import MotoServices, buckets
from raysm.local.server.records import JobRecord


@pytest.fixture
def s3(tmp_path):
    # As every server makes it at its start.
    (tmp_path / "s3").mkdir()
    client = MotoServices().client("s3")
    yield client
    clear(client)


def clear(client):
    for name in list(buckets()):
        for item in client.list_objects_v2(Bucket=name).get("Contents", ()):
            client.delete_object(Bucket=name, Key=item["Key"])
        client.delete_bucket(Bucket=name)


def put(client, bucket, **objects):
    client.create_bucket(Bucket=bucket)
    for key, body in objects.items():
        client.put_object(Bucket=bucket, Key=key, Body=body)


def keys(client, bucket):
    return {item["Key"] for item in client.list_objects_v2(Bucket=bucket).get("Contents", ())}


def record(channel, secondary="MaxRuntimeExceeded", restarts="1", restart="0"):
    source = {"S3DataSource": {"S3Uri": f"s3://{LOCAL_BUCKET}/{channel}"}}
    return JobRecord(
        kind="training",
        name="a",
        arn="arn:a",
        region="us-east-1",
        request={"InputDataConfig": [{"ChannelName": "raysm", "DataSource": source}]},
        secondary=secondary,
        tags={MAX_RESTARTS_TAG: restarts, RESTART_TAG: restart},
        created_s=1.0,
        modified_s=1.0,
    )


@pytest.mark.parametrize(
    ("job", "kept"),
    [
        (record("payload"), {"payload"}),
        (record("payload", restart="1"), set()),
        (record("payload", secondary="Completed"), set()),
        (record("payload", restarts="many"), set()),
        (record("elsewhere"), set()),
    ],
    ids=["goes on", "has gone on", "completed", "odd tag", "another payload"],
)
def test_of_raysms_own_bucket_only_what_a_follow_up_job_reads_is_kept(s3, tmp_path, job, kept):
    put(s3, LOCAL_BUCKET, payload=b"x", data=b"y")
    s3_snapshot.save(tmp_path, [job])
    clear(s3)
    s3_snapshot.restore(tmp_path)
    assert keys(s3, LOCAL_BUCKET) == kept


def test_a_file_that_cannot_be_read_is_put_aside_and_told(s3, tmp_path, caplog):
    put(s3, "mine", model=b"weights")
    s3_snapshot.save(tmp_path, [])
    clear(s3)
    (path,) = (file for file in (tmp_path / "s3").rglob("mine"))
    path.write_bytes(b"torn")
    with caplog.at_level(logging.WARNING):
        s3_snapshot.restore(tmp_path)
    assert buckets() == {}
    assert "the bucket mine could not be read" in caplog.text
    (aside,) = (tmp_path / "s3" / "unreadable").iterdir()
    assert aside.read_bytes() == b"torn"
    assert str(aside) in caplog.text


def test_buckets_of_another_moto_are_left_and_told(s3, tmp_path, caplog):
    (tmp_path / "s3" / "4.0.0").mkdir(parents=True)
    (tmp_path / "s3" / "4.0.0" / "mine").write_bytes(b"of another time")
    with caplog.at_level(logging.WARNING):
        s3_snapshot.restore(tmp_path)
    assert "holds buckets that moto 4.0.0 wrote" in caplog.text
    assert (tmp_path / "s3" / "4.0.0" / "mine").exists()


def test_a_home_that_was_deleted_is_not_made_anew_by_its_buckets(s3, tmp_path):
    put(s3, "mine", model=b"weights")
    with pytest.raises(FileNotFoundError):
        s3_snapshot.save(tmp_path / "gone", [])
    assert not (tmp_path / "gone").exists()
