"""Queues and job definitions of the embedded Batch."""

LOGS = "/aws/batch/job"


def make_queue(batch, name="programs", *, vcpus=8):
    batch.create_compute_environment(
        computeEnvironmentName=f"{name}-env",
        type="MANAGED",
        computeResources={
            "type": "FARGATE",
            "maxvCpus": vcpus,
            "subnets": ["subnet-1"],
            "securityGroupIds": ["sg-1"],
        },
    )
    return batch.create_job_queue(
        jobQueueName=name,
        priority=1,
        computeEnvironmentOrder=[{"order": 1, "computeEnvironment": f"{name}-env"}],
    )["jobQueueArn"]


def define(batch, script, name="program", **fields):
    """Register a definition that runs a line of shell."""
    container = {
        "image": "any:latest",
        "command": ["sh", "-c", script],
        **fields.pop("container", {}),
    }
    return batch.register_job_definition(
        jobDefinitionName=name, type="container", containerProperties=container, **fields
    )["jobDefinitionArn"]
