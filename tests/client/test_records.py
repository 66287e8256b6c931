"""What is remembered of a task's jobs."""

import hashlib
import tracemalloc

from raysm.client.job.records import Record, job_name, keep, latest_of_state, recorded, with_inputs
from raysm.client.service import Service
from raysm.client.storage.s3 import Storage
from raysm.request import Input
from tests.support.crowd import Crowd
from tests.support.sagemaker import aws

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


def test_no_more_records_are_read_than_are_taken(remote):
    storage, names = remembered(remote, 50)
    assert next(recorded(PREFIX, storage)).job == names[-1]
    assert 1 <= read(remote) <= 16


def test_of_several_jobs_of_one_state_the_latest_is_found(remote):
    storage = Storage(remote.service)
    for number, state in enumerate(["s3://b/x", "s3://b/y/", "s3://b/x", None]):
        record = Record(job=f"j{number}", api="CreateTrainingJob", digest="", state=state, submitted_s=float(number))
        keep(record, f"file://{remote.service.home}/records-of-a-state", storage)
    prefix = f"file://{remote.service.home}/records-of-a-state"
    found = [latest_of_state(prefix, storage, uri) for uri in ("s3://b/x", "s3://b/y", "s3://b/z", None)]
    assert [record and record.job for record in found] == ["j2", "j1", None, "j2"]


# The state of the inputs


def crowded(count):
    crowd = Crowd(count)
    return crowd, Storage(Service(aws(), clients={"s3": crowd}.__getitem__))


def test_of_too_many_objects_no_more_are_listed_than_it_takes_to_know_that():
    crowd, storage = crowded(1_300_000)
    assert (
        with_inputs("d", {"x": Input("s3://crowd/x/"), "y": Input("s3://crowd/y/")}, storage, max_objects=10_000)
        is None
    )
    assert crowd.lists <= 11


def test_the_most_objects_counts_for_all_inputs_together():
    _, storage = crowded(600)
    inputs = {"x": Input("s3://crowd/x/"), "y": Input("s3://crowd/y/")}
    assert with_inputs("d", inputs, storage, max_objects=1200) is not None
    assert with_inputs("d", inputs, storage, max_objects=1199) is None


def test_no_list_of_all_objects_is_kept_in_memory():
    _, storage = crowded(20_000)
    with_inputs("d", {"x": Input("s3://crowd/x/")}, storage, max_objects=1000)  # what is imported on first use
    tracemalloc.start()
    with_inputs("d", {"x": Input("s3://crowd/x/")}, storage)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5e6, "a page at a time; a list of them all takes 10 MB"
