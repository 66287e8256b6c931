"""What raysm may have to be allowed on AWS: the calls of the client by the user, and of the service by the job's role.

What flows in are the names of one account's things, what flows out are policies of IAM, as narrow as they can be said.
The tests record every call of the client, and compare them with ``calls`` below: a call without a line fails them, and
so does a line without a call. Which action an operation needs, and on which kind of resource, is from the Service
Authorization Reference, https://docs.aws.amazon.com/service-authorization/latest/reference/, and for the role from
https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html. Nothing of it was seen on AWS.
"""

import itertools
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["ROLE", "ROLE_ARN", "SERVICE", "USER", "Grant", "Names", "covered", "policy", "resources_of", "trust"]

SERVICE = "sagemaker.amazonaws.com"
"""Who takes on the job's role; the same in all partitions."""

Names: TypeAlias = Mapping[str, tuple[str, ...]]
"""What stands for each placeholder of a resource; where nothing does, the resource falls away."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """Some actions on some resources, for one purpose."""

    purpose: str
    """The Sid of its statement: letters and digits alone."""
    meaning: str
    """What for, in a sentence's part."""
    actions: tuple[str, ...]
    """As IAM names them."""
    resources: tuple[str, ...] = ("*",)
    """ARNs with placeholders; ``*`` where the actions take no narrower one."""
    calls: tuple[str, ...] = ()
    """The operations of the client that need them, ``s3:HeadBucket``."""
    is_side: bool = False
    """Whether jobs can be sent and followed without it."""
    needs: str = ""
    """The placeholder without which a job does not need it at all; empty for every job."""
    conditions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What has to hold beside, as IAM says it."""


JOBS = (
    "arn:{partition}:sagemaker:{region}:{account}:training-job/*",
    "arn:{partition}:sagemaker:{region}:{account}:processing-job/*",
)
LOGS = (
    "arn:{partition}:logs:{region}:{account}:log-group:/aws/sagemaker/TrainingJobs:*",
    "arn:{partition}:logs:{region}:{account}:log-group:/aws/sagemaker/ProcessingJobs:*",
)
OBJECTS = "arn:{partition}:s3:::{bucket}/raysm/*"
ROLE_ARN = "{role}"
"""The resource of what is about the job's role."""

USER: tuple[Grant, ...] = (
    Grant(
        purpose="Jobs",
        meaning="make, describe, stop and tag jobs",
        # AddTags, since a job is made with tags: by them another process knows it again.
        actions=(
            "sagemaker:CreateTrainingJob",
            "sagemaker:CreateProcessingJob",
            "sagemaker:AddTags",
            "sagemaker:DescribeTrainingJob",
            "sagemaker:DescribeProcessingJob",
            "sagemaker:StopTrainingJob",
            "sagemaker:StopProcessingJob",
            # Describe does not tell the tags, and in them stands which jobs of a chain came before.
            "sagemaker:ListTags",
        ),
        resources=JOBS,
        calls=(
            "sagemaker:CreateTrainingJob",
            "sagemaker:CreateProcessingJob",
            "sagemaker:DescribeTrainingJob",
            "sagemaker:DescribeProcessingJob",
            "sagemaker:StopTrainingJob",
            "sagemaker:StopProcessingJob",
            "sagemaker:ListTags",
        ),
    ),
    Grant(
        purpose="ListOfJobs",
        meaning="`raysm jobs`, and finding a job by its name",
        # Apart from Jobs: a list is asked of all jobs, and IAM knows no narrower resource for it.
        actions=("sagemaker:ListTrainingJobs", "sagemaker:ListProcessingJobs"),
        calls=("sagemaker:ListTrainingJobs", "sagemaker:ListProcessingJobs"),
    ),
    Grant(
        purpose="PassRole",
        meaning="hand the role to SageMaker, and to nobody else",
        actions=("iam:PassRole",),
        resources=(ROLE_ARN,),
        conditions={"StringEquals": {"iam:PassedToService": SERVICE}},
    ),
    Grant(
        purpose="Bucket",
        meaning="look for the bucket and below it; make the default one (not needed where `--bucket` names one)",
        actions=("s3:ListBucket", "s3:CreateBucket"),
        resources=("arn:{partition}:s3:::{bucket}",),
        # IAM has no action for HEAD: of a bucket it counts as listing, of an object as reading.
        calls=("s3:HeadBucket", "s3:ListObjectsV2", "s3:CreateBucket"),
    ),
    Grant(
        purpose="Objects",
        meaning="payload, uploaded inputs, results, records",
        # Parts of uploads and of copies count as PutObject; only to give an upload up has an action of its own.
        actions=("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"),
        resources=(OBJECTS,),
        calls=(
            "s3:HeadObject",
            "s3:GetObject",
            "s3:PutObject",
            "s3:CreateMultipartUpload",
            "s3:UploadPart",
            "s3:CompleteMultipartUpload",
            "s3:AbortMultipartUpload",
            "s3:CopyObject",
            "s3:UploadPartCopy",
            "s3:DeleteObject",
        ),
    ),
    Grant(
        purpose="Inputs",
        meaning="the state of inputs in S3, for `--if-done skip`",
        actions=("s3:ListBucket",),
        resources=("arn:{partition}:s3:::{input_bucket}",),
        calls=("s3:ListObjectsV2",),
    ),
    Grant(
        purpose="Keys",
        meaning="where `output_kms_key` encrypts what lies in the bucket",
        # No calls: S3 asks KMS in the caller's name. It decrypts, too, for a mere upload, whose parts it joins:
        # https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html
        actions=("kms:GenerateDataKey", "kms:Decrypt"),
        resources=("{output_key}",),
    ),
    Grant(
        purpose="Logs",
        meaning="`raysm logs`, and everything that follows a job",
        actions=("logs:DescribeLogStreams", "logs:GetLogEvents"),
        resources=LOGS,
        calls=("logs:DescribeLogStreams", "logs:GetLogEvents"),
    ),
    Grant(
        purpose="Metrics",
        meaning="the metrics that a job defines",
        actions=("cloudwatch:GetMetricStatistics",),
        calls=("cloudwatch:GetMetricStatistics",),
    ),
    Grant(
        purpose="Session",
        meaning="`raysm tunnel`, `raysm shell` and `raysm debug`: let somebody in, and begin a session",
        actions=("sagemaker:UpdateTrainingJob", "ssm:StartSession"),
        # A document that AWS publishes belongs to no account.
        resources=(
            JOBS[0],
            "arn:{partition}:ssm:{region}::document/AWS-StartPortForwardingSession",
            "arn:{partition}:ssm:{region}::document/AWS-StartInteractiveCommand",
        ),
        calls=("sagemaker:UpdateTrainingJob", "ssm:StartSession"),
        needs="remote_debug",
    ),
    Grant(
        purpose="OpenSessions",
        meaning="the same: go on with a session when its connection was closed, and end it",
        actions=("ssm:ResumeSession", "ssm:TerminateSession"),
        # Apart from the one above: a session that was begun is a resource of its own.
        resources=("arn:{partition}:ssm:{region}:{account}:session/*",),
        calls=("ssm:ResumeSession", "ssm:TerminateSession"),
        needs="remote_debug",
    ),
    Grant(
        purpose="ImageLogin",
        meaning="of `raysm image build --push` alone: the registry's password",
        actions=("ecr:GetAuthorizationToken",),
        calls=("ecr:GetAuthorizationToken",),
        is_side=True,
    ),
    Grant(
        purpose="ImagePush",
        # What docker itself calls: https://docs.aws.amazon.com/AmazonECR/latest/userguide/image-push-iam.html
        meaning="of `raysm image build --push` alone: the repository, and what `docker push` does",
        actions=(
            "ecr:DescribeRepositories",
            "ecr:CreateRepository",
            "ecr:BatchCheckLayerAvailability",
            "ecr:BatchGetImage",
            "ecr:InitiateLayerUpload",
            "ecr:UploadLayerPart",
            "ecr:CompleteLayerUpload",
            "ecr:PutImage",
        ),
        # Named as the build names it by default: who gives a --tag of another name needs another line.
        resources=("arn:{partition}:ecr:{region}:{account}:repository/raysm*",),
        calls=("ecr:DescribeRepositories", "ecr:CreateRepository"),
        is_side=True,
    ),
    Grant(
        purpose="DoctorRole",
        meaning="of `raysm doctor` alone: the role, and what it may do",
        is_side=True,
        actions=("iam:GetRole", "iam:SimulatePrincipalPolicy"),
        resources=(ROLE_ARN,),
        calls=("iam:GetRole", "iam:SimulatePrincipalPolicy"),
    ),
    Grant(
        purpose="DoctorImage",
        meaning="of `raysm doctor` alone: whether the image is there",
        is_side=True,
        actions=("ecr:BatchGetImage",),
        resources=("{repository}",),
        calls=("ecr:BatchGetImage",),
    ),
    Grant(
        purpose="DoctorKeys",
        meaning="of `raysm doctor` alone: whether keys are enabled",
        is_side=True,
        actions=("kms:DescribeKey",),
        resources=("{output_key}", "{volume_key}"),
        calls=("kms:DescribeKey",),
    ),
    Grant(
        purpose="DoctorQuotas",
        meaning="of `raysm doctor` alone",
        is_side=True,
        actions=("servicequotas:ListServiceQuotas", "servicequotas:ListAWSDefaultServiceQuotas"),
        calls=("service-quotas:ListServiceQuotas", "service-quotas:ListAWSDefaultServiceQuotas"),
    ),
    Grant(
        purpose="DoctorNetwork",
        meaning="of `raysm doctor` alone, for jobs in a VPC",
        is_side=True,
        actions=(
            "ec2:DescribeSubnets",
            "ec2:DescribeRouteTables",
            "ec2:DescribeVpcEndpoints",
            "ec2:DescribeSecurityGroups",
        ),
        calls=(
            "ec2:DescribeSubnets",
            "ec2:DescribeRouteTables",
            "ec2:DescribeVpcEndpoints",
            "ec2:DescribeSecurityGroups",
        ),
        needs="subnet",
    ),
)
"""What the user who sends and follows jobs calls, and what ``raysm doctor`` does for him."""

UNGUARDED = ("sts:GetCallerIdentity",)
"""Operations that take no permission."""

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
        meaning="where `remote_debug` lets somebody in",
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


def covered() -> frozenset[str]:
    """Return every operation of the client that some grant is for."""
    return frozenset(UNGUARDED) | {call for grant in USER for call in grant.calls}


def policy(grants: Iterable[Grant], names: Names) -> dict[str, Any]:
    """Return the policy that makes these grants, of what a job with these names needs."""
    # The version of IAM's language, of which this is the latest: without it, IAM reads the one of 2008.
    return {"Version": "2012-10-17", "Statement": list(_statements(grants, names))}


def trust() -> dict[str, Any]:
    """Return the trust policy of the role."""
    statement = {"Effect": "Allow", "Principal": {"Service": SERVICE}, "Action": "sts:AssumeRole"}
    return {"Version": "2012-10-17", "Statement": [statement]}


def resources_of(grant: Grant, names: Names) -> list[str]:
    """Return the resources of a grant by their ARNs; none where the job does not need it."""
    if grant.needs and not names.get(grant.needs):
        return []
    expanded = itertools.chain.from_iterable(_expanded(resource, names) for resource in grant.resources)
    # Several channels may lie in one bucket, and that may be the job's own.
    return list(dict.fromkeys(expanded))


def _statements(grants: Iterable[Grant], names: Names) -> Iterator[dict[str, Any]]:
    for grant in grants:
        resources = resources_of(grant, names)
        if not resources:
            continue
        statement: dict[str, Any] = {"Sid": grant.purpose, "Effect": "Allow", "Action": list(grant.actions)}
        statement["Resource"] = resources if len(resources) > 1 else resources[0]
        if grant.conditions:
            statement["Condition"] = {name: dict(values) for name, values in grant.conditions.items()}
        yield statement


def _expanded(resource: str, names: Names) -> Iterator[str]:
    """Yield a resource once for each combination of what stands for its placeholders."""
    placeholders = [name for _, name, _, _ in string.Formatter().parse(resource) if name]
    for values in itertools.product(*(names.get(name, ()) for name in placeholders)):
        yield resource.format(**dict(zip(placeholders, values, strict=True)))
