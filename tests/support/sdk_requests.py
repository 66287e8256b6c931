"""What the SageMaker SDK sends and knows: ``python -m tests.support.sdk_requests``, asked on stdin, answered on stdout.

In a process of its own, because the SDK takes seconds to import. S3 and STS are moto's, and a
Create is caught. Asked:
``{"plans": [[resource, request], ...], "resend": [[resource, request], ...], "job": {...}, "source": FOLDER}``.
"""

import json
import sys
from types import SimpleNamespace

import boto3
from moto import mock_aws
from sagemaker.core import resources
from sagemaker.core.helper.session_helper import Session
from sagemaker.core.shapes import RemoteDebugConfig
from sagemaker.core.training.configs import (
    CheckpointConfig,
    Compute,
    InputData,
    OutputDataConfig,
    SourceCode,
    StoppingCondition,
)
from sagemaker.core.utils.code_injection.codec import transform
from sagemaker.core.utils.code_injection.shape_dag import SHAPE_DAG
from sagemaker.train.model_trainer import ModelTrainer

import raysm.sdk

BASIC = ("string", "boolean", "integer", "long", "float", "double", "timestamp")


class CaughtError(Exception):
    """A Create, with what it was called with."""


def catch(params, **_):
    raise CaughtError(params)


def allow(params, **_):
    """Answer for IAM that the role may do everything that the SDK asks about: moto does not simulate policies."""
    actions = [value for key, value in params["body"].items() if key.startswith("ActionNames")]
    allowed = [{"EvalActionName": action, "EvalDecision": "allowed"} for action in actions]
    return SimpleNamespace(status_code=200), {"EvaluationResults": allowed, "IsTruncated": False}


TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "sagemaker.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}


def make_role(session, arn):
    """Make the role, which the SDK looks at before it sends anything."""
    name = arn.rpartition("/")[2]
    session.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(TRUST))


def caught(create):
    """Return what ``create`` gives boto3."""
    try:
        create()
    except CaughtError as error:
        return error.args[0]
    raise AssertionError("nothing was sent")


def unknown(value, shape, path=()):
    """Yield where a request has a member that the SDK's table of shapes lacks."""
    about = SHAPE_DAG[shape]
    if about["type"] == "structure":
        members = {member["name"]: member for member in about["members"]}
        for name, item in value.items():
            if name not in members:
                yield [*path, name]
            elif members[name]["type"] not in BASIC:
                yield from unknown(item, members[name]["shape"], (*path, name))
    elif about["type"] == "list" and about["member_type"] not in BASIC:
        for index, item in enumerate(value):
            yield from unknown(item, about["member_shape"], (*path, index))


def resent(session, resource, request):
    """Return what the SDK's class of the resource sends for a request, after its own checks of types."""
    fields = transform(request, f"Create{resource}Request")
    return caught(lambda: getattr(resources, resource).create(session=session, **fields))


SOURCES = {
    "ModelTrainer": {"entry_script": "train.py"},
    "ModelTrainer with raysm.sdk.Ray": {"entry_script": "train.py"},
    # https://github.com/aws-samples/sample-ray-on-amazon-sagemaker-training-jobs: its notebooks
    # send their script by a launcher, which forms the cluster, with remote debugging for Ray's
    # dashboard.
    "AWS's sample for Ray": {"command": "python launcher.py --entrypoint train.py"},
}
"""How each of the twins says what to run."""


def twin(name, job, source, session):
    """Return what ModelTrainer sends for a job."""
    trainer = ModelTrainer(
        sagemaker_session=Session(boto_session=session),
        training_image=job["image"],
        role=job["role"],
        base_job_name="job",
        source_code=SourceCode(source_dir=source, **SOURCES[name]),
        compute=Compute(
            instance_type=job["instance_type"],
            instance_count=job["count"],
            volume_size_in_gb=job["volume_gb"],
            keep_alive_period_in_seconds=0,
        ),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=job["max_runtime_s"]),
        output_data_config=OutputDataConfig(s3_output_path=job["output_uri"]),
        checkpoint_config=CheckpointConfig(
            s3_uri=job["checkpoint_uri"], local_path="/opt/ml/checkpoints"
        ),
        environment=job["environment"],
        hyperparameters=job["hyperparameters"],
        distributed=raysm.sdk.Ray() if name.endswith("raysm.sdk.Ray") else None,
    )
    if name.startswith("AWS"):
        trainer = trainer.with_remote_debug_config(RemoteDebugConfig(enable_remote_debug=True))
    inputs = [
        InputData(channel_name=channel, data_source=uri) for channel, uri in job["inputs"].items()
    ]
    return caught(lambda: trainer.train(input_data_config=inputs, wait=False))


def main():
    """Answer."""
    question = json.load(sys.stdin)
    session = boto3.Session(
        aws_access_key_id="test", aws_secret_access_key="test", region_name="eu-west-1"
    )
    session.events.register("before-call.iam.SimulatePrincipalPolicy", allow)
    for kind in ("Training", "Processing"):
        session.events.register(f"provide-client-params.sagemaker.Create{kind}Job", catch)
    with mock_aws():
        make_role(session, question["job"]["role"])
        answer = {
            "unknown": [
                path
                for kind, plan in question["plans"]
                for path in unknown(plan, f"Create{kind}Request")
            ],
            "resent": [resent(session, kind, plan) for kind, plan in question["resend"]],
            "twins": {
                name: twin(name, question["job"], question["source"], session) for name in SOURCES
            },
        }
    print("ANSWER", json.dumps(answer))


if __name__ == "__main__":
    main()
