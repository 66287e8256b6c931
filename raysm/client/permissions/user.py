"""What the client calls on AWS, in the name of the user who sends and follows jobs.

The tests record every call of the client, and compare them with ``calls`` below: a call without a line fails them, and
so does a line without a call.
"""

from raysm.client.permissions.grant import JOBS, LOGS, OBJECTS, ROLE_ARN, SERVICE, Grant

__all__ = ["UNGUARDED", "USER", "covered"]

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
        purpose="Tuning",
        meaning="make, describe and stop tuning jobs, and list their trials (`raysm.tune`)",
        actions=(
            "sagemaker:CreateHyperParameterTuningJob",
            "sagemaker:DescribeHyperParameterTuningJob",
            "sagemaker:StopHyperParameterTuningJob",
            "sagemaker:ListTrainingJobsForHyperParameterTuningJob",
            "sagemaker:AddTags",
        ),
        resources=("arn:{partition}:sagemaker:{region}:{account}:hyper-parameter-tuning-job/*",),
        calls=(
            "sagemaker:CreateHyperParameterTuningJob",
            "sagemaker:DescribeHyperParameterTuningJob",
            "sagemaker:StopHyperParameterTuningJob",
            "sagemaker:ListTrainingJobsForHyperParameterTuningJob",
        ),
        is_side=True,
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
        meaning="pass the role to SageMaker only",
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
        meaning="the metrics that a job defines; of the jobs of a grid all at once",
        actions=("cloudwatch:GetMetricStatistics", "cloudwatch:GetMetricData"),
        calls=("cloudwatch:GetMetricStatistics", "cloudwatch:GetMetricData"),
    ),
    Grant(
        purpose="Session",
        meaning="`raysm tunnel`, `raysm shell` and `raysm debug`: allow and start sessions",
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
        purpose="Controller",
        meaning="of `raysm grid run --via batch` alone: the job that runs a grid, and its definition",
        is_side=True,
        actions=("batch:SubmitJob", "batch:RegisterJobDefinition"),
        resources=(
            "arn:{partition}:batch:{region}:{account}:job-queue/*",
            "arn:{partition}:batch:{region}:{account}:job-definition/*",
        ),
        calls=("batch:SubmitJob", "batch:RegisterJobDefinition"),
    ),
    Grant(
        purpose="ControllerRole",
        meaning="the same: hand the role to its container, where the definition is registered for it",
        is_side=True,
        actions=("iam:PassRole",),
        resources=(ROLE_ARN,),
        conditions={"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}},
    ),
    Grant(
        purpose="ControllerLooks",
        meaning="the same",
        is_side=True,
        actions=("batch:DescribeJobQueues", "batch:DescribeJobDefinitions", "batch:DescribeJobs"),
        calls=("batch:DescribeJobQueues", "batch:DescribeJobDefinitions", "batch:DescribeJobs"),
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


def covered() -> frozenset[str]:
    """Return every operation of the client that some grant is for."""
    return frozenset(UNGUARDED) | {call for grant in USER for call in grant.calls}
