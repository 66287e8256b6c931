"""What a program of Batch is told, and what it runs."""

import contextlib
import dataclasses

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.batch import program_work
from raysm.local.server.batch.program_work import LOG_GROUP, ProgramWork, command_of, container_of, variables_of
from raysm.local.server.batch.records import BatchJob, Try
from raysm.local.server.moto_services import MotoServices
from tests.support.sagemaker_server import wait_until


def job(container=None, overrides=None, *, request=None, **fields):
    properties = {"image": "any:1", "command": ["echo", "Ref::what", "Ref::unknown"], **(container or {})}
    told = {"containerProperties": properties, "containerOverrides": overrides or {}, **(request or {})}
    values = {"id": "j", "kind": "job", "name": "j", "region": "r", "queue": "arn/queue", "created_s": 0}
    return BatchJob(**values, request=told, **fields)


def named(**variables):
    return [{"name": name, "value": value} for name, value in variables.items()]


def test_parameters_stand_in_the_command_where_it_refers_to_them():
    assert command_of(job(request={"parameters": {"what": "hello"}})) == ("echo", "hello", "Ref::unknown")


def test_what_a_request_overrides_replaces_what_its_definition_says():
    assert command_of(job(overrides={"command": ["true"]})) == ("true",)
    container = container_of(job({"environment": named(A="1", B="1")}, {"environment": named(B="2")}))
    assert container["environment"] == named(A="1", B="2")


def test_a_command_that_stands_in_the_image_alone_is_not_known_here():
    with pytest.raises(ApiError, match="does not know what the image 'any:1' runs"):
        command_of(job({"command": []}))


def test_a_program_knows_its_queue_its_environment_and_its_attempt():
    one = job(
        request={"environment": "arn:aws:batch:r:1:compute-environment/env"}, tries=(Try(resource="", begun_s=0),)
    )
    assert variables_of(one) == {
        "AWS_BATCH_JOB_ID": "j",
        "AWS_BATCH_JQ_NAME": "queue",
        "AWS_BATCH_CE_NAME": "env",
        "AWS_BATCH_JOB_ATTEMPT": "2",
    }


def test_a_child_of_an_array_knows_its_index_which_nobody_else_says():
    child = job({"environment": named(AWS_BATCH_JOB_ARRAY_INDEX="99", MINE="1")}, index=3, size=5)
    told = variables_of(child)
    assert (told["AWS_BATCH_JOB_ARRAY_INDEX"], told["AWS_BATCH_JOB_ARRAY_SIZE"], told["MINE"]) == ("3", "5", "1")


@pytest.mark.parametrize(
    ("container", "overrides", "vcpus"),
    [
        ({}, {}, 1.0),
        ({"vcpus": 4}, {}, 4.0),
        ({"resourceRequirements": [{"type": "VCPU", "value": "0.25"}]}, {}, 0.25),
        ({"vcpus": 4}, {"resourceRequirements": [{"type": "VCPU", "value": "2"}]}, 2.0),
    ],
)
def test_it_takes_the_vcpus_that_it_asks_for(tmp_path, container, overrides, vcpus):
    assert ProgramWork(tmp_path, None).need(job(container, overrides)) == vcpus


def test_an_environment_has_the_vcpus_that_it_was_made_with_and_an_unmanaged_one_any(tmp_path):
    work = ProgramWork(tmp_path, None)
    assert work.capacity({"computeResources": {"maxvCpus": 8}}) == 8.0
    assert work.capacity({}) == float("inf")


def test_one_that_is_not_there_has_failed(tmp_path):
    assert ProgramWork(tmp_path, None).look(job()).status == "FAILED"


def test_a_program_whose_home_was_deleted_does_not_begin_and_makes_it_not_anew(tmp_path):
    work = ProgramWork(tmp_path, None)
    (tmp_path / "batch").rename(tmp_path / "elsewhere")
    with pytest.raises(ApiError, match="CannotStartContainerError"):
        work.begin(job())
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]


def test_a_program_ends_as_it_did_though_its_home_was_deleted_and_its_lines_with_it(tmp_path):
    one = job({"command": ["true"]}, request={"jobDefinition": "definition"})
    with contextlib.closing(ProgramWork(tmp_path, None)) as work:
        one = dataclasses.replace(one, tries=(Try(resource=work.begin(one), begun_s=0),))
        (tmp_path / "batch").rename(tmp_path / "elsewhere")
        states = []
        wait_until(lambda: states.append(work.look(one)) or states[-1].status != "RUNNING")
    assert (states[-1].status, states[-1].exit_code) == ("SUCCEEDED", 0)


class Failing:
    """The client of a log that fails so many times after it has taken the lines."""

    def __init__(self, client, times):
        self.client, self.times = client, times

    def __getattr__(self, name):
        return getattr(self.client, name)

    def put_log_events(self, **request):
        self.client.put_log_events(**request)
        self.times -= 1
        if self.times >= 0:
            raise OSError("Too many open files")


class Logs:
    """What a program's lines are told to."""

    def __init__(self, failures):
        # A region of its own: moto keeps one log for all tests.
        self.region = "eu-south-2"
        self.failing = Failing(MotoServices().client("logs", self.region), failures)

    def client(self, service, region):
        return self.failing

    def lines(self, stream):
        answer = self.failing.get_log_events(logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=True)
        return [event["message"] for event in answer["events"]]


def ended(tmp_path, logs, name):
    """Run a program to its end; return how it was seen, and its stream."""
    one = job({"command": ["echo", "last words"]}, request={"jobDefinition": name})
    one = dataclasses.replace(one, region=logs.region)
    with contextlib.closing(ProgramWork(tmp_path, logs)) as work:
        one = dataclasses.replace(one, tries=(Try(resource=work.begin(one), begun_s=0),))
        states = []
        wait_until(lambda: states.append(work.look(one)) or states[-1].status != "RUNNING")
    return states[-1], one.tries[-1].resource


def test_a_program_ends_as_it_did_and_with_each_line_once_though_they_could_not_be_told_at_first(tmp_path):
    logs = Logs(failures=2)
    state, stream = ended(tmp_path, logs, "again")
    assert (state.status, state.exit_code) == ("SUCCEEDED", 0)
    assert logs.lines(stream) == ["last words"]


def test_a_program_whose_lines_can_never_be_told_ends_as_it_did_all_the_same_and_it_is_said(tmp_path, caplog):
    state, _ = ended(tmp_path, Logs(failures=program_work.TELLINGS), "never")
    assert (state.status, state.exit_code) == ("SUCCEEDED", 0)
    assert "the lines of the job j of the embedded Batch are lost" in caplog.text
