"""The queue and the definition of a controller, as Batch has them."""

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.batch_job.definition import ControllerJob, check_queue, definition_of
from tests.support.handed_over_grids import JOB, ROLE

IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/raysm:batch"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"jobQueueName": "other"}, "there is no such thing as the job queue 'controllers' in eu-west-1"),
        (
            {"computeEnvironmentOrder": []},
            "is for training jobs, and runs no programs",
        ),
        ({"state": "DISABLED"}, "is DISABLED; enable it"),
        ({"schedulingPolicyArn": "arn:aws:batch:x"}, "has a scheduling policy, and a controller no share"),
    ],
    ids=["none", "of training jobs", "disabled", "shares"],
)
def test_a_queue_that_runs_no_controller_is_refused(laptop, changes, message):
    laptop.batch.queue |= changes
    with pytest.raises(InvalidRequest, match=message):
        check_queue(JOB, laptop.service)


def test_without_a_definition_an_image_is_needed_to_register_one(laptop):
    job = ControllerJob(job_queue="controllers", job_definition="none")
    with pytest.raises(InvalidRequest, match="no active job definition 'none' in eu-west-1, and no image to register"):
        definition_of(job, laptop.service)


def test_a_definition_without_a_role_is_refused_where_jobs_are_billed(laptop):
    laptop.define("bare")
    del laptop.batch.definitions[-1]["containerProperties"]["jobRoleArn"]
    with pytest.raises(InvalidRequest, match="the job definition 'bare' has no jobRoleArn"):
        definition_of(ControllerJob(job_queue="controllers", job_definition="bare"), laptop.service)
    with pytest.raises(InvalidRequest, match="by a role of its own: name it beside the image"):
        definition_of(ControllerJob(job_queue="controllers", image=IMAGE), laptop.service)


def test_a_definition_of_several_containers_is_refused(laptop):
    laptop.batch.definitions.append({"jobDefinitionName": "many", "revision": 1, "ecsProperties": {}})
    with pytest.raises(InvalidRequest, match="has no containerProperties: a controller is one container"):
        definition_of(ControllerJob(job_queue="controllers", job_definition="many:1"), laptop.service)


def test_of_an_image_a_definition_is_registered_once(laptop):
    job = ControllerJob(job_queue="controllers", job_definition="own", image=IMAGE, job_role=ROLE, execution_role=ROLE)
    made = definition_of(job, laptop.service).made(laptop.service)
    registered = laptop.batch.definitions[-1]
    assert made.endswith("job-definition/own:2")
    assert registered["platformCapabilities"] == ["FARGATE"]
    container = registered["containerProperties"]
    assert (container["image"], container["jobRoleArn"], container["executionRoleArn"]) == (IMAGE, ROLE, ROLE)
    # The next grid's is the same.
    assert definition_of(job, laptop.service).made(laptop.service) == "own"
    assert laptop.batch.definitions[-1] is registered


def test_a_controller_of_fargate_has_a_public_address_where_it_is_asked_for_and_else_none(laptop):
    roles = {"image": IMAGE, "job_role": ROLE, "execution_role": ROLE}
    job = ControllerJob(job_queue="controllers", job_definition="own", assign_public_ip=True, **roles)
    addressed = definition_of(job, laptop.service)
    assert addressed.container["networkConfiguration"] == {"assignPublicIp": "ENABLED"}
    addressed.made(laptop.service)
    # Who asks for none is not given the definition that has one.
    job = ControllerJob(job_queue="controllers", job_definition="own", **roles)
    bare = definition_of(job, laptop.service)
    assert bare.container["networkConfiguration"] == {"assignPublicIp": "DISABLED"}
    assert bare.registration is not None


def test_of_ec2_nothing_is_said_of_addresses(laptop):
    job = ControllerJob(job_queue="controllers", job_definition="own", image=IMAGE, job_role=ROLE)
    assert "networkConfiguration" not in definition_of(job, laptop.service).container


def test_its_variables_are_those_of_its_environment_and_its_secrets(laptop):
    laptop.define(
        "own",
        environment=[{"name": "A", "value": "1"}],
        secrets=[{"name": "B", "valueFrom": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:b"}],
    )
    job = ControllerJob(job_queue="controllers", job_definition="own")
    assert definition_of(job, laptop.service).variables == {"A", "B"}
