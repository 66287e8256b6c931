"""A grid is handed over to AWS Batch; what cannot be is refused before anything is made."""

import contextlib
import dataclasses
import os
import sqlite3

import pytest

import raysm
from raysm.core.request import Input
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.grid.batch_job.controller_job import (
    ControllerJob,
    Definition,
    check_database,
    check_inputs,
    definition_of,
    send,
)
from raysm.features.grid.client.handle import GridHandle
from raysm.features.grid.local_grids import opened, read_target
from raysm.features.grid.rules import Rules
from raysm.features.grid.running import open_running
from raysm.features.grid.sources.databases import Query
from raysm.features.grid.sources.source import source_of
from raysm.features.grid.store.database import LeaseLost
from raysm.features.grid.store.store import path_of
from tests.support.handed_over_grids import JOB, ROLE, ROWS, TYPE
from tests.support.sagemaker import REGION

IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/raysm:batch"


def test_a_definition_without_a_role_is_refused_where_jobs_are_billed(laptop):
    laptop.define("bare")
    del laptop.batch.definitions[-1]["containerProperties"]["jobRoleArn"]
    with pytest.raises(InvalidRequest, match="'bare'.*jobRoleArn"):
        definition_of(ControllerJob(job_queue="controllers", job_definition="bare"), laptop.service)
    with pytest.raises(InvalidRequest, match="--job-role"):
        definition_of(ControllerJob(job_queue="controllers", image=IMAGE), laptop.service)


def test_of_an_image_a_definition_is_registered_once(laptop):
    job = ControllerJob(
        job_queue="controllers",
        job_definition="own",
        image=IMAGE,
        job_role=ROLE,
        execution_role=ROLE,
    )
    made = definition_of(job, laptop.service).made(laptop.service)
    registered = laptop.batch.definitions[-1]
    assert made.endswith("job-definition/own:2")
    assert registered["platformCapabilities"] == ["FARGATE"]
    container = registered["containerProperties"]
    assert (container["image"], container["jobRoleArn"], container["executionRoleArn"]) == (
        IMAGE,
        ROLE,
        ROLE,
    )
    # The next grid's is the same.
    assert definition_of(job, laptop.service).made(laptop.service) == "own"
    assert laptop.batch.definitions[-1] is registered


BARE = Definition(name="own", container={})


@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        ({"inputs": {"data": "drives/"}}, [{"key": "a", "lr": 1}], "'data'.*'drives/'"),
        ({"inputs": {"data": Input("./x")}}, [{"key": "a", "lr": 1}], r"'data'.*'\./x'"),
        ({}, [{"key": "a", "lr": 1, "input_data": "a.csv"}], r"row 1 \(a\).*'data'.*'a\.csv'"),
    ],
    ids=["of all rows", "as a value", "of a row"],
)
def test_a_path_of_this_machine_is_refused(laptop, options, rows, message):
    with pytest.raises(InvalidRequest, match=message):
        check_inputs(laptop.planned(rows, options=options))


@contextlib.contextmanager
def variable(name, value):
    os.environ[name] = value
    try:
        yield f"env:{name}"
    finally:
        os.environ.pop(name)


def written_back(laptop, on):
    source = source_of(Query("SELECT key, lr FROM drives", on=on))
    return dataclasses.replace(laptop.request(), source=source, rules=Rules(write_back=True))


def test_a_database_of_this_machine_is_not_written_back_to(laptop, tmp_path):
    with pytest.raises(InvalidRequest, match=r"campaigns\.db"):
        check_database(written_back(laptop, str(tmp_path / "campaigns.db")), BARE)
    with (
        variable("RAYSM_TEST_URL", "sqlite:///campaigns.db") as name,
        pytest.raises(InvalidRequest, match="sqlite:///campaigns"),
    ):
        check_database(written_back(laptop, name), BARE)
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(InvalidRequest, match="open connection"):
            check_database(written_back(laptop, connection), BARE)
    with pytest.raises(InvalidRequest, match="password"):
        check_database(
            written_back(laptop, "postgresql://user:secret@db.example.com/campaigns"), BARE
        )


def test_the_variable_that_names_a_database_has_to_be_the_definitions_too(laptop):
    with variable("RAYSM_TEST_URL", "postgresql://user:secret@db.example.com/campaigns") as name:
        request = written_back(laptop, name)
        with pytest.raises(InvalidRequest, match="'own'.*RAYSM_TEST_URL"):
            check_database(request, BARE)
        secret = {
            "name": "RAYSM_TEST_URL",
            "valueFrom": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:x",
        }
        check_database(request, Definition(name="own", container={"secrets": [secret]}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"job_queue": ""}, "job_queue.*''"),
        ({"job_definition": "a b"}, "job_definition.*'a b'"),
        ({"job_role": "me", "image": "raysm"}, "job_role.*'me'"),
        ({"job_role": ROLE}, "job_role.*image"),
        (
            {"job_definition": "own:3", "image": "raysm"},
            "'own:3'",
        ),
        (
            {"assign_public_ip": True, "image": "raysm", "job_role": ROLE},
            "assign_public_ip.*execution_role",
        ),
        ({"attempts": 11}, "attempts.*11"),
    ],
)
def test_what_cannot_be_is_refused_with_its_value(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        ControllerJob(**{"job_queue": "controllers"} | fields)


def test_the_job_takes_the_grid_up_and_is_started_again_unless_it_says_itself_that_it_is_over(
    laptop,
):
    sent = send(laptop.planned(), JOB, laptop.services)
    (call,) = laptop.batch.submitted
    assert sent.id == "id-1"
    assert (call["jobQueue"], call["jobDefinition"]) == ("controllers", "raysm-grid-controller")
    command = call["containerOverrides"]["command"]
    assert command[:5] == ["python3", "-m", "raysm", "grid", "take-up"]
    assert command[6:] == ["--on", "aws"]
    assert call["retryStrategy"]["attempts"] == 10
    assert {
        (rule["onExitCode"], rule["action"]) for rule in call["retryStrategy"]["evaluateOnExit"]
    } == {
        ("2", "EXIT"),
        ("3", "EXIT"),
    }


def handle(laptop):
    return GridHandle("drives", laptop.service)


def test_while_a_batch_job_is_open_there_is_no_second_one(laptop):
    laptop.send()
    with pytest.raises(InvalidRequest, match="'drives'.*id-1"):
        laptop.send()
    laptop.batch.status = "FAILED"
    assert laptop.send([{"key": "c", "lr": 0.3}]).id == "id-2"
    assert handle(laptop).status().states == {"waiting": 3}


def test_a_grid_that_is_over_takes_no_job(laptop, tmp_path):
    laptop.send()
    laptop.batch.status = "SUCCEEDED"
    running = laptop.take_up(tmp_path / "job")
    with running.store.database.transaction("test", fenced=False):
        running.store.database.connection.execute("UPDATE task SET state = 'done'")
    running.close()
    assert handle(laptop).status().states == {"done": 2}
    assert laptop.send() is None
    assert len(laptop.batch.submitted) == 1
    # The state has come back, and the Batch job finds it no more.
    assert read_target(path_of("drives")).away is None
    with opened("drives") as store:
        assert store.rows.states() == {"done": 2}
    with pytest.raises(InvalidRequest, match="'drives' was taken back"):
        laptop.take_up(tmp_path / "late")


def test_no_controller_of_this_machine_runs_beside_the_batch_job(laptop):
    grid = laptop.planned()
    here = open_running(grid, laptop.services)
    here.step(here.clock.now())
    with pytest.raises(LeaseLost, match=str(os.getpid())):
        laptop.send()
    assert laptop.batch.submitted == []
    here.close()
    here = open_running(grid, laptop.services)
    laptop.send()
    with pytest.raises(LeaseLost, match="AWS Batch"):
        here.step(here.clock.now())
    here.close()


def test_a_submission_that_batch_refuses_leaves_the_grid_here(laptop):
    submit = laptop.batch.submit_job

    def refuses(**call):
        raise ServiceError("ClientException: Job Queue controllers not found")

    laptop.batch.submit_job = refuses
    with pytest.raises(ServiceError, match="controllers not found"):
        laptop.send()
    laptop.batch.submit_job = submit
    assert read_target(path_of("drives")).away is None
    assert laptop.send().id == "id-1"


def test_from_python_it_is_one_call_and_the_handle_goes_on(laptop):
    request = laptop.request()
    grid = raysm.Grid(
        request.template.workload,
        rows=ROWS,
        name="drives",
        regions=(REGION,),
        instance_type=TYPE,
        on=laptop.service,
    )
    assert grid.submit(JOB) == "id-1"
    assert grid.status().states == {"waiting": 2}
    assert grid.stop().has_controller
    # The command is in the bucket, where the controller finds it.
    assert grid.status().state == "open"
    with pytest.raises(InvalidRequest, match="Batch job runs drives"):
        grid.extend([{"key": "c", "lr": 0.3}])
    # If the Batch job has ended without reading it, the next command takes the grid back.
    laptop.batch.status = "FAILED"
    assert grid.stop().stopped == ()
    assert (grid.status().state, grid.status().states) == ("closed", {"stopped": 2})
    assert grid.retry() == 2


def test_a_controller_of_fargate_has_a_public_address_where_it_is_asked_for_and_else_none(laptop):
    roles = {"image": IMAGE, "job_role": ROLE, "execution_role": ROLE}
    job = ControllerJob(
        job_queue="controllers", job_definition="own", assign_public_ip=True, **roles
    )
    addressed = definition_of(job, laptop.service)
    assert addressed.container["networkConfiguration"] == {"assignPublicIp": "ENABLED"}
    addressed.made(laptop.service)
    # Who asks for none is not given the definition that has one.
    job = ControllerJob(job_queue="controllers", job_definition="own", **roles)
    bare = definition_of(job, laptop.service)
    assert bare.container["networkConfiguration"] == {"assignPublicIp": "DISABLED"}
    assert bare.registration is not None
