"""What the role of a job has to be allowed, and who may take it on.

From https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html: no test can record what the service does.
"""

from typing import Any

from raysm.client.permissions.grant import LOGS, OBJECTS, SERVICE, Grant

__all__ = ["ROLE", "SERVICE", "trust"]

ROLE: tuple[Grant, ...] = (
    Grant(
        purpose="Bucket",
        meaning="find what to read",
        actions=("s3:ListBucket",),
        resources=("arn:{partition}:s3:::{bucket}", "arn:{partition}:s3:::{input_bucket}"),
    ),
    Grant(
        purpose="Objects",
        meaning="payload, results and checkpoints",
        # The checkpoint folder is kept alike on both sides: what is removed there is removed in S3.
        actions=("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"),
        # No slash before the asterisk: what the user gave may end with one, or without.
        resources=(OBJECTS, "arn:{partition}:s3:::{output_prefix}*"),
    ),
    Grant(
        purpose="Inputs",
        meaning="inputs in S3",
        actions=("s3:GetObject",),
        resources=("arn:{partition}:s3:::{input_prefix}*",),
    ),
    Grant(purpose="Login", meaning="the registry's password", actions=("ecr:GetAuthorizationToken",)),
    Grant(
        purpose="Image",
        meaning="pull the image",
        actions=("ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer", "ecr:BatchGetImage"),
        resources=("{repository}",),
    ),
    Grant(
        purpose="Logs",
        meaning="write what the containers print",
        actions=("logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"),
        resources=LOGS,
    ),
    Grant(
        purpose="Metrics",
        meaning="write the metrics of jobs",
        actions=("cloudwatch:PutMetricData",),
        # PutMetricData takes no resource: its namespace is all that narrows it.
        conditions={"StringLike": {"cloudwatch:namespace": "/aws/sagemaker/*"}},
    ),
    Grant(
        purpose="OutputKey",
        meaning="where a key encrypts the outputs",
        actions=("kms:GenerateDataKey", "kms:Encrypt", "kms:Decrypt"),
        resources=("{output_key}",),
    ),
    Grant(
        purpose="VolumeKey",
        meaning="where a key encrypts the volumes",
        actions=("kms:CreateGrant", "kms:DescribeKey"),
        resources=("{volume_key}",),
    ),
    Grant(
        purpose="Network",
        meaning="for jobs in a VPC",
        actions=(
            "ec2:CreateNetworkInterface",
            "ec2:CreateNetworkInterfacePermission",
            "ec2:DeleteNetworkInterface",
            "ec2:DeleteNetworkInterfacePermission",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeVpcs",
            "ec2:DescribeDhcpOptions",
            "ec2:DescribeSubnets",
            "ec2:DescribeSecurityGroups",
        ),
        needs="subnet",
    ),
    Grant(
        purpose="Packages",
        meaning="where `pip_index` is a repository of CodeArtifact",
        actions=("codeartifact:GetAuthorizationToken",),
        # Apart from Repository: the token is the domain's, the packages are its repository's.
        resources=("{domain}",),
    ),
    Grant(
        purpose="Repository",
        meaning="the same",
        actions=("codeartifact:GetRepositoryEndpoint", "codeartifact:ReadFromRepository"),
        resources=("{package_repository}",),
    ),
    Grant(
        purpose="Bearer",
        meaning="the same: CodeArtifact's tokens are given by STS",
        actions=("sts:GetServiceBearerToken",),
        conditions={"StringEquals": {"sts:AWSServiceName": "codeartifact.amazonaws.com"}},
        # Told, since the resource of this one is *, which does not fall away where nothing stands for a placeholder.
        needs="domain",
    ),
    Grant(
        purpose="Tracking",
        meaning="where `tracking` is the ARN of an MLflow of SageMaker's: what raysm's copy of the metrics calls",
        # By the names of MLflow's own calls, of which set_terminated is UpdateRun:
        # https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsagemakerwithmlflow.html
        actions=(
            "sagemaker-mlflow:GetExperimentByName",
            "sagemaker-mlflow:CreateExperiment",
            "sagemaker-mlflow:SearchRuns",
            "sagemaker-mlflow:CreateRun",
            "sagemaker-mlflow:UpdateRun",
            "sagemaker-mlflow:SetTag",
            "sagemaker-mlflow:LogBatch",
            "sagemaker-mlflow:GetMetricHistory",
        ),
        resources=("{mlflow}",),
    ),
    Grant(
        purpose="TrackingApp",
        # Apart from Tracking: a tracking server knows no such action, and a narrow policy for one lacks it rightly.
        meaning="the same, where it is an MLflow App",
        actions=("sagemaker:CallMlflowAppApi",),
        resources=("{mlflow_app}",),
    ),
    Grant(
        purpose="Session",
        meaning="for jobs with `remote_debug`",
        actions=(
            "ssmmessages:CreateControlChannel",
            "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel",
            "ssmmessages:OpenDataChannel",
        ),
        needs="remote_debug",
    ),
)
"""What SageMaker does in the role's name, before, in and after the containers, and what raysm in them asks."""


def trust() -> dict[str, Any]:
    """Return the trust policy of the role."""
    statement = {"Effect": "Allow", "Principal": {"Service": SERVICE}, "Action": "sts:AssumeRole"}
    return {"Version": "2012-10-17", "Statement": [statement]}
