"""A company's account where much is forbidden: the doctor names each obstacle before a job, with its remedy."""

from dataclasses import replace

from raysm.client.doctor.case import Intent, State
from raysm.request import Cluster, Input, Security
from tests.support import aws_account
from tests.support.aws_account import BUCKET
from tests.support.sagemaker import refusal


def test_the_doctor_names_each_obstacle_of_a_hostile_account():
    # No image is named, and AWS's own lack Ray.
    with aws_account.account(image=None) as made:
        keys = [made.kms.create_key()["KeyMetadata"]["Arn"] for _ in range(2)]
        made.encrypt(BUCKET, keys[0])
        made.s3.put_object(Bucket=BUCKET, Key="x/0", Body=b"", ServerSideEncryption="aws:kms", SSEKMSKeyId=keys[1])
        made.deny("kms:Decrypt", "explicitDeny")
        subnet, group = made.vpc(s3=True)
        intent = Intent(
            cluster=Cluster("ml.m5.large", count=2),
            security=Security(subnets=(subnet,), security_groups=(group,), isolation=True),
            inputs={"train": Input(f"s3://{BUCKET}/x/")},
        )
        found = made.findings(intent)
        obstacles = [
            ("role's rights", f"kms:Decrypt on {keys[0]}", "aws iam put-role-policy"),
            ("role's rights", f"kms:Decrypt on {keys[1]}", "aws iam put-role-policy"),
            ("image", "has no Ray", "raysm image"),
            ("subnets", "Ray must be installed", "raysm image"),
            ("groups", "do not allow tcp", "authorize-security-group-ingress"),
        ]
        for name, text, remedy in obstacles:
            (finding,) = (finding for finding in found[name] if text in finding.text)
            assert (finding.state, finding.needed, remedy in finding.remedy) == (State.BAD, True, True)
        # A question that AWS throttles or refuses is no obstacle, and hides none of the others.
        made.refuse("describe_subnets", "RequestLimitExceeded")
        again = made.findings(replace(intent, inputs={}))
        assert [finding.state for finding in again["subnets"]] == [State.UNKNOWN]
        assert again["role's rights"][0].state is State.BAD
        # Credentials that expire are named, with how to renew them.
        made.fail("get_caller_identity", refusal("ExpiredToken", "expired", "GetCallerIdentity"))
        made.service = type(made.service)(made.service.target, clients=made.clients.__getitem__)
        assert made.findings(intent)["credentials"][0].state is State.BAD
