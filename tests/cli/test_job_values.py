"""What --json prints of a job."""

import json

from raysm.cli.job_values import described


def test_all_of_a_job_that_runs_is_said_in_json_and_what_is_not_known_is_null(remote, job):
    values = json.loads(json.dumps(described(job)))
    assert values["name"] == job.name
    assert values["arn"] == job.arn
    assert values["status"] == "InProgress"
    assert values["instances"] == [{"type": "ml.m5.large", "count": 2}]
    assert (values["ended"], values["failure_reason"], values["cost"]) == (None, None, None)


def test_how_a_job_ended_is_said_with_its_reason_and_its_times(remote, job):
    remote.sagemaker.end(job.name, "Failed", FailureReason="AlgorithmError: no room")
    values = described(job)
    assert values["status"] == "Failed"
    # Without the word that SageMaker puts before whatever an algorithm says.
    assert values["failure_reason"] == "no room"
    assert values["ended"] is not None
    assert json.loads(json.dumps(values)) == values
