"""Service jobs as training jobs, of a SageMaker that is a table."""

import json

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.records import BatchJob, Try
from raysm.local.server.batch.training_work import PREFIX, TrainingWork, payload_of
from raysm.local.server.batch.work import NotNow
from raysm.local.server.records import JobRecord
from tests.support.sagemaker_server import training_request


class Table:
    """Training jobs that are what the test says."""

    def __init__(self):
        self.sent, self.records, self.stopped, self.deleted, self.refusal = {}, {}, [], [], None

    def launch(self, request, region):
        if self.refusal:
            raise self.refusal
        self.sent[request["TrainingJobName"]] = request

    def training_job(self, name, region):
        if name not in self.records:
            raise ApiError("ValidationException", f"no {name}")
        return self.records[name]

    def stop_training(self, name, region):
        self.stopped.append(name)

    def delete_training(self, name, region):
        self.deleted.append(name)

    def is_now(self, name, **fields):
        values = {"kind": "training", "arn": "", "region": "us-east-1", "request": {}, "created_s": 0, "modified_s": 0}
        self.records[name] = JobRecord(name=name, **{**values, **fields})


@pytest.fixture
def table():
    return Table()


def job(count=1, resource=None, **fields):
    payload = training_request("a-name-that-is-longer-than-there-is-room-for-it", "true", count=count)
    tries = () if resource is None else (Try(resource=f"arn/{resource}", begun_s=0),)
    request = {"serviceRequestPayload": json.dumps(payload), **fields.pop("request", {})}
    values = {"id": "j", "kind": "service-job", "name": "j", "region": "us-east-1", "queue": "q", "created_s": 0}
    return BatchJob(**values, request=request, tries=tries, **fields)


def seen(table, **fields):
    table.is_now("t", **fields)
    return TrainingWork(table).look(job(resource="t"))


def test_a_training_job_gets_a_name_of_batchs_own_and_the_jobs_tags(table):
    arn = TrainingWork(table).begin(job(tags={"team": "x"}))
    ((name, request),) = table.sent.items()
    assert arn.endswith(f":training-job/{name}")
    assert name.startswith(f"{PREFIX}a-name-that-is-longer-")
    assert len(name) == 63
    assert request["Tags"] == [{"Key": "team", "Value": "x"}]


def test_two_attempts_have_two_names(table):
    work = TrainingWork(table)
    assert work.begin(job()) != work.begin(job())


def test_it_takes_as_much_as_it_has_instances(table):
    assert TrainingWork(table).need(job(count=3)) == 3
    limits = [{"maxCapacity": 4, "capacityUnit": "NUM_INSTANCES"}]
    assert TrainingWork(table).capacity({"capacityLimits": limits}) == 4


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"secondary": "Starting"}, "SCHEDULED"),
        ({"secondary": "Pending"}, "SCHEDULED"),
        ({"secondary": "Downloading"}, "STARTING"),
        ({"secondary": "Training", "started_s": 1.0}, "RUNNING"),
        ({"secondary": "Starting", "started_s": 1.0}, "RUNNING"),
        ({"secondary": "Completed", "status": "Completed"}, "SUCCEEDED"),
        ({"secondary": "Stopped", "status": "Stopped"}, "FAILED"),
    ],
)
def test_each_status_of_a_training_job_is_one_of_batchs(table, fields, status):
    assert seen(table, **fields).status == status


def test_a_failure_is_told_in_sagemakers_words_behind_batchs(table):
    failed = seen(table, status="Failed", secondary="Failed", failure_reason="InternalServerError: We encountered")
    assert failed.reason == "Received status from SageMaker:InternalServerError: We encountered"
    assert not failed.is_starved


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "Failed", "secondary": "Failed", "failure_reason": "CapacityError: Unable to provision"},
        {"status": "Stopped", "secondary": "MaxWaitTimeExceeded"},
    ],
)
def test_one_that_found_no_capacity_is_deleted_and_tried_again(table, fields):
    starved = seen(table, **fields)
    assert starved.is_starved
    assert starved.reason.startswith("CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY")
    assert table.deleted == ["t"]


def test_one_that_ran_and_was_stopped_by_time_had_its_capacity(table):
    assert not seen(table, status="Stopped", secondary="MaxWaitTimeExceeded", started_s=1.0).is_starved


def test_one_that_the_account_has_no_room_for_waits(table):
    table.refusal = ApiError("ResourceLimitExceeded", "The account-level service limit")
    with pytest.raises(NotNow, match="account-level"):
        TrainingWork(table).begin(job())
    table.refusal = ApiError("ValidationException", "no such image")
    with pytest.raises(ApiError, match="no such image"):
        TrainingWork(table).begin(job())


def test_it_is_stopped_while_it_goes_on_alone(table):
    work = TrainingWork(table)
    work.stop(job(resource="t"))
    table.is_now("t")
    work.stop(job(resource="t"))
    table.is_now("t", status="Stopping")
    work.stop(job(resource="t"))
    assert table.stopped == ["t"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("{", "not JSON"), ("[]", "JSON object"), ('{"RoleArn": "x"}', "trainingJobName"), (" " * 10_241, "10240 bytes")],
)
def test_a_payload_that_could_never_be_created_is_refused(text, wrong):
    with pytest.raises(ApiError, match=wrong):
        payload_of({"serviceRequestPayload": text})
