"""What is remembered of a task's jobs."""

from raysm.client.job.records import Record, keep, latest_of_state, with_inputs
from raysm.client.service import Service
from raysm.client.storage.s3 import Storage
from raysm.request import Input
from tests.support.crowd import Crowd
from tests.support.sagemaker import aws


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


def test_the_most_objects_counts_for_all_inputs_together():
    _, storage = crowded(600)
    inputs = {"x": Input("s3://crowd/x/"), "y": Input("s3://crowd/y/")}
    assert with_inputs("d", inputs, storage, max_objects=1200) is not None
    assert with_inputs("d", inputs, storage, max_objects=1199) is None
