"""What is remembered of a task's jobs."""

import hashlib

from raysm.client.records import Record, job_name, keep, recorded
from raysm.client.storage import Storage

PREFIX = "s3://bucket/data/default/task/jobs"


def digest(number):
    return hashlib.sha256(str(number).encode()).hexdigest()


def remembered(remote, count):
    """Remember so many jobs of a task, sent one a second, each with a digest of its own; return their names."""
    storage = Storage(remote.service)
    remote.s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    names = [job_name("task", digest(number), 1_700_000_000.0 + number) for number in range(count)]
    for number, name in enumerate(names):
        sent_s = 1_700_000_000.0 + number
        record = Record(job=name, api="CreateTrainingJob", digest=digest(number), state=None, submitted_s=sent_s)
        keep(record, PREFIX, storage)
    remote.s3.calls.clear()
    return storage, names


def read(remote):
    return len([name for name, _ in remote.s3.calls if name == "get_object"])


def test_records_come_the_latest_first(remote):
    storage, names = remembered(remote, 40)
    assert [record.job for record in recorded(PREFIX, storage)][:16] == names[:-17:-1]
    assert {record.job for record in recorded(PREFIX, storage)} == set(names)


def test_no_more_records_are_read_than_are_taken(remote):
    storage, names = remembered(remote, 50)
    assert next(recorded(PREFIX, storage)).job == names[-1]
    assert 1 <= read(remote) <= 16


def test_of_many_records_only_those_that_may_be_the_same_are_read(remote):
    storage, names = remembered(remote, 50)
    assert [record.job for record in recorded(PREFIX, storage, digest(7)) if record.digest == digest(7)] == [names[7]]
    assert not [record for record in recorded(PREFIX, storage, digest("new")) if record.digest == digest("new")]
    assert 1 <= read(remote) <= 4  # by chance the digest of another may begin the same


def test_a_record_whose_name_tells_nothing_is_read(remote):
    storage, _ = remembered(remote, 3)
    record = Record(job="mine", api="CreateTrainingJob", digest=digest("x"), state=None, submitted_s=1.0)
    keep(record, PREFIX, storage)
    assert list(recorded(PREFIX, storage, digest("x"))) == [record]
