"""The job of AWS Batch that runs a grid, as it is asked for."""

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.batch_job.definition import ControllerJob

ROLE = "arn:aws:iam::123456789012:role/controllers"


def test_a_queue_is_all_that_is_needed_where_the_definition_is_there():
    job = ControllerJob(job_queue="controllers")
    assert (job.definition, job.image, job.attempts) == ("raysm-grid-controller", None, 10)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"job_queue": ""}, "the job queue of a controller is named by its name or ARN, got ''"),
        ({"job_definition": "a b"}, "a job definition is named by .*, got 'a b'"),
        ({"job_role": "me", "image": "raysm"}, "job_role is the ARN of a role, .*, got 'me'"),
        ({"job_role": ROLE}, "job_role is of a definition that raysm registers, which needs an image too"),
        ({"execution_role": ROLE}, "execution_role is of a definition"),
        ({"job_definition": "own:3", "image": "raysm"}, "'own:3' is one that there is: give a name without a revision"),
        (
            {"assign_public_ip": True, "image": "raysm", "job_role": ROLE},
            "assign_public_ip is of a controller on Fargate, and there is no execution_role",
        ),
        ({"attempts": 11}, "attempts of a controller are 1 to 10, got 11"),
    ],
    ids=[
        "queue",
        "definition",
        "role",
        "role alone",
        "execution role alone",
        "revision and image",
        "address",
        "attempts",
    ],
)
def test_what_cannot_be_is_refused_with_its_value(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        ControllerJob(**{"job_queue": "controllers"} | fields)
