"""An account as the doctor sees it: moto's IAM, S3, ECR, EC2 and KMS, and quotas and simulation, which moto lacks."""

import contextlib
import functools
import json

from moto import mock_aws

from raysm.core.client.service import Service
from raysm.core.request import Cluster
from raysm.features.account.case import Case, Intent
from raysm.features.account.checks import examine
from tests.support.permissions import covered
from tests.support.sagemaker import (
    ACCOUNT,
    IMAGE,
    REGION,
    SESSION,
    Failure,
    ScriptedClient,
    aws,
    operations_of,
    refusal,
)

ROLE_NAME = "jobs"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/{ROLE_NAME}"
BUCKET = "my-bucket"
USER = f"arn:aws:iam::{ACCOUNT}:user/me"
QUOTAS = {
    "ml.m5.large for training job usage": 4,
    "ml.m5.large for spot training job usage": 0,
    "ml.m5.large for processing job usage": 2,
}
SERVICES = ("iam", "s3", "ecr", "ec2", "kms", "logs", "sts", "sagemaker")
ONE = Intent(cluster=Cluster("ml.m5.large"))


@functools.cache
def real_clients():
    """Return boto3's clients, which moto answers within an account; to make them takes longer than most tests."""
    return {name: SESSION.client(name, region_name=REGION) for name in SERVICES}


class Caller:
    """boto3's client of STS: says who asks."""

    def __init__(self, client, arn):
        self.meta, self.arn = client.meta, arn

    def get_caller_identity(self):
        return {"Arn": self.arn, "Account": ACCOUNT}


class Permissions:
    """boto3's client of IAM: moto's, and a simulation by the actions that are denied."""

    def __init__(self, client):
        self._client = client
        self.denied = {}
        self.questions = []

    @property
    def asked(self):
        """Whose policies were asked about."""
        return {principal for principal, _, _ in self.questions}

    def __getattr__(self, name):
        return getattr(self._client, name)

    def simulate_principal_policy(self, **call):
        self.questions.append((call["PolicySourceArn"], call["ActionNames"], call["ResourceArns"]))
        results = [
            {
                "EvalActionName": action,
                "EvalResourceName": resource,
                "EvalDecision": self.denied.get(action, "allowed"),
            }
            for action in call["ActionNames"]
            for resource in call["ResourceArns"]
        ]
        return {"EvaluationResults": results, "IsTruncated": False}


class Quotas:
    """boto3's client of Service Quotas: two quotas a page."""

    def __init__(self, applied, defaults):
        self.applied, self.defaults = applied, defaults

    def list_service_quotas(self, **call):
        return _page(self.applied, call)

    def list_aws_default_service_quotas(self, **call):
        return _page(self.defaults, call)


def _page(quotas, call):
    begin = int(call.get("NextToken", 0))
    rows = [
        {"QuotaName": name, "QuotaCode": f"L-{name[:4]}", "Value": float(value)}
        for name, value in quotas.items()
    ]
    more = {"NextToken": str(begin + 2)} if begin + 2 < len(rows) else {}
    return {"Quotas": rows[begin : begin + 2], **more}


class Account:
    """One account with all that a job on one instance needs."""

    def __init__(self, *, caller=USER, **target):
        self.failures = []
        real = real_clients()
        self.permissions = Permissions(real["iam"])
        self.quotas = Quotas(dict(QUOTAS), {})
        behind = real | {
            "iam": self.permissions,
            "sts": Caller(real["sts"], caller),
            "service-quotas": self.quotas,
        }
        self.clients = {
            name: ScriptedClient(client, self.failures) for name, client in behind.items()
        }
        self.s3, self.ecr, self.ec2, self.kms, self.iam = (
            real[name] for name in ("s3", "ecr", "ec2", "kms", "iam")
        )
        self.service = Service(aws(**{"bucket": BUCKET} | target), clients=self.clients.__getitem__)

    def operations(self):
        """Return every operation that was called, ``iam:GetRole``."""
        scripted = {
            name: client
            for name, client in self.clients.items()
            if isinstance(client, ScriptedClient)
        }
        return set().union(*(operations_of(name, client) for name, client in scripted.items()))

    def fill(self):
        """Make what a job needs."""
        trust = {
            "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}}]
        }
        trust["Statement"][0]["Action"] = "sts:AssumeRole"
        self.iam.create_role(RoleName=ROLE_NAME, AssumeRolePolicyDocument=json.dumps(trust))
        self.make_bucket(BUCKET, REGION)
        self.make_image(IMAGE)

    def make_bucket(self, name, region):
        """Make a bucket in a region."""
        SESSION.client("s3", region_name=region).create_bucket(
            Bucket=name, CreateBucketConfiguration={"LocationConstraint": region}
        )

    def encrypt(self, name, key):
        """Have a bucket encrypt by a key, and its answers name the key as S3's do."""
        rule = {
            "ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
        }
        self.s3.put_bucket_encryption(
            Bucket=name, ServerSideEncryptionConfiguration={"Rules": [rule]}
        )

    def make_image(self, uri):
        """Push an image without layers."""
        name, _, tag = uri.rpartition("/")[2].partition(":")
        self.ecr.create_repository(repositoryName=name)
        kind = "application/vnd.docker.distribution.manifest.v2+json"
        manifest = {
            "schemaVersion": 2,
            "mediaType": kind,
            "config": {"digest": f"sha256:{'0' * 64}"},
            "layers": [],
        }
        self.ecr.put_image(repositoryName=name, imageManifest=json.dumps(manifest), imageTag=tag)

    def deny(self, action, decision="implicitDeny"):
        """Have IAM's simulation say no."""
        self.permissions.denied[action] = decision

    def fail(self, operation, error):
        """Have a question answered by an error, always."""
        self.failures.insert(
            0, Failure(operation, error, times=None, after=0, when=lambda call: True, done=False)
        )

    def refuse(self, operation, code="AccessDeniedException", message="not authorized"):
        """Have a question refused, always."""
        self.fail(operation, refusal(code, message, operation))

    def vpc(self, *, nat=False, s3=False, addresses=24):
        """Make a VPC with a subnet and a group whose members reach each other; return subnet and group."""
        vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnet = self.ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.1.0/{addresses}")["Subnet"][
            "SubnetId"
        ]
        table = self.ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
        self.ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
        if nat:
            gateway = self.ec2.create_nat_gateway(SubnetId=subnet)["NatGateway"]["NatGatewayId"]
            self.ec2.create_route(
                RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=gateway
            )
        if s3:
            service = f"com.amazonaws.{REGION}.s3"
            self.ec2.create_vpc_endpoint(
                VpcId=vpc, ServiceName=service, VpcEndpointType="Gateway", RouteTableIds=[table]
            )
        group = self.ec2.create_security_group(GroupName="jobs", Description="of jobs", VpcId=vpc)[
            "GroupId"
        ]
        return subnet, group

    def let_in(self, group, **rule):
        """Let members of a group reach each other."""
        pairs = [{"GroupId": group}]
        whole = {"IpProtocol": "-1", "UserIdGroupPairs": pairs} | rule
        self.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[whole])

    def case(self, intent=ONE, *, role=ROLE, plan=None):
        """Return the case of a job in this account."""
        return Case(self.service, intent, role=role, plan=plan)

    def findings(self, intent=ONE, **options):
        """Return what the doctor finds, by the name of the check."""
        found = {}
        for finding in examine(self.case(intent, **options)):
            found.setdefault(finding.name, []).append(finding)
        return found


@contextlib.contextmanager
def account(**options):
    """Yield an account in which one instance can run a job."""
    with mock_aws():
        made = Account(**options)
        made.fill()
        yield made
        lacking = made.operations() - covered()
        assert not lacking, f"add to policies.json what these calls need: {sorted(lacking)}"
