"""The bucket, the inputs, the keys, the image and the network."""

import json
from dataclasses import replace

import pytest

from raysm.core.request import Cluster, Input, Security
from raysm.features.account.doctor.case import Intent, State
from tests.support import aws_account
from tests.support.aws_account import BUCKET, ROLE
from tests.support.sagemaker import ACCOUNT, IMAGE, REGION


def inputs(account, **uris):
    return account.findings(Intent(inputs={name: Input(uri) for name, uri in uris.items()}))[
        "inputs"
    ]


def keys(account, **names):
    return account.findings(Intent(security=Security(**names)))["keys"]


def listed(account):
    return account.s3.list_objects_v2(Bucket=BUCKET).get("KeyCount")


def test_the_bucket_is_written_to_and_left_as_it_was(account):
    assert account.findings()["bucket"][0].state is State.GOOD
    assert "put_object" in [name for name, _ in account.clients["s3"].calls]
    assert listed(account) == 0


def test_a_bucket_that_refuses_the_write_is_bad_since_a_job_is_sent_by_the_same_call(account):
    account.refuse("put_object", "AccessDenied")
    finding, _ = account.findings()["bucket"]
    assert finding.state is State.BAD
    assert "s3:PutObject" in finding.remedy


def test_a_bucket_that_is_named_has_to_be_there_and_the_default_one_is_made_by_the_first_job():
    with aws_account.account(bucket="gone") as made:
        assert made.findings()["bucket"][0].remedy == "aws s3 mb s3://gone --region eu-west-1"
    with aws_account.account(bucket="far") as made:
        made.make_bucket("far", "us-west-2")
        (finding,) = made.findings()["bucket"]
        assert finding.state is State.BAD
        assert "us-west-2" in finding.text
    with aws_account.account(bucket=None) as made:
        (finding,) = made.findings()["bucket"]
        assert finding.state is State.GOOD
        assert "the first job makes it" in finding.text


def test_a_bucket_without_a_rule_for_uploads_that_were_cut_off_is_told_and_runs_jobs(account):
    finding = account.findings()["bucket"][1]
    assert (finding.state, finding.needed) == (State.BAD, False)
    rule = {"ID": "parts", "Status": "Enabled", "Filter": {"Prefix": ""}}
    rule["AbortIncompleteMultipartUpload"] = {"DaysAfterInitiation": 7}
    account.s3.put_bucket_lifecycle_configuration(
        Bucket=BUCKET, LifecycleConfiguration={"Rules": [rule]}
    )
    assert account.findings()["bucket"][1].state is State.GOOD


def test_the_key_of_an_input_whose_objects_may_not_be_read_is_unknown(account):
    account.s3.put_object(Bucket=BUCKET, Key="x/0", Body=b"")
    account.refuse("head_object", "403")
    (finding,) = account.findings(Intent(inputs={"train": Input(f"s3://{BUCKET}/x/")}))["inputs"]
    assert (finding.state, "KMS key" in finding.text) == (State.UNKNOWN, True)


ROOT, OTHER = f"arn:aws:iam::{ACCOUNT}:root", ROLE.replace("jobs", "others")


@pytest.mark.parametrize(
    ("principal", "is_conditional", "denial", "state"),
    [
        # A key's own policy admits a role whose policies do not name the key, or leaves it to them.
        (ROLE, False, "implicitDeny", State.GOOD),
        (ROLE, False, "explicitDeny", State.BAD),
        (ROOT, False, "implicitDeny", State.BAD),
        (OTHER, False, "implicitDeny", State.BAD),
        (ROOT, False, None, State.GOOD),
        # It admits under conditions, cannot be read, or names others: it is not known whether it
        # does.
        ("*", True, "implicitDeny", State.UNKNOWN),
        (None, False, "implicitDeny", State.UNKNOWN),
        (OTHER, False, None, State.UNKNOWN),
    ],
)
def test_what_the_role_may_do_with_a_key_is_told_as_far_as_the_keys_own_policy_is_known(
    account, principal, is_conditional, denial, state
):
    statement = {
        "Effect": "Allow",
        "Principal": {"AWS": principal or "*"},
        "Action": "kms:*",
        "Resource": "*",
    }
    statement |= (
        {"Condition": {"StringEquals": {"kms:CallerAccount": ACCOUNT}}} if is_conditional else {}
    )
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    account.encrypt(BUCKET, account.kms.create_key(Policy=document)["KeyMetadata"]["Arn"])
    if principal is None:
        # Such a caller does not learn either whether the key is AWS's own.
        account.refuse("describe_key")
        account.refuse("get_key_policy")
    if denial:
        account.deny("kms:Decrypt", denial)
    assert {finding.state for finding in account.findings()["role's rights"]} == {state}


def test_inputs_are_looked_at_by_one_key_each(account):
    for number in range(3):
        account.s3.put_object(Bucket=BUCKET, Key=f"data/{number}", Body=b"")
    account.make_bucket("far", "us-west-2")
    found = inputs(
        account,
        a=f"s3://{BUCKET}/data/",
        b=f"s3://{BUCKET}/dtaa/",
        c="s3://far/x",
        d="s3://nowhere/x",
    )
    assert [finding.state for finding in found] == [State.GOOD, State.BAD, State.BAD, State.BAD]
    assert "there is nothing at" in found[1].text
    assert "aws s3 sync s3://far/x" in found[2].remedy
    assert len([name for name, _ in account.clients["s3"].calls if name == "list_objects_v2"]) == 2


def test_local_inputs_have_to_be_there_and_outputs_of_jobs_are_left_to_the_plan(account, tmp_path):
    found = inputs(account, a=str(tmp_path), b=str(tmp_path / "none"), c="job:other/model")
    assert [finding.state for finding in found] == [State.GOOD, State.BAD]


def test_each_key_has_to_be_enabled_and_is_looked_at_once(account):
    key = account.kms.create_key()["KeyMetadata"]["KeyId"]
    (finding,) = keys(account, volume_kms_key=key, output_kms_key=key)
    assert finding.state is State.GOOD
    account.kms.disable_key(KeyId=key)
    assert keys(account, volume_kms_key=key)[0].remedy == f"aws kms enable-key --key-id {key}"
    assert (
        keys(account, volume_kms_key="11111111-2222-3333-4444-555555555555")[0].state is State.BAD
    )


REGISTRY = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"


def image(uri):
    with aws_account.account(image=uri) as made:
        (finding,) = made.findings()["image"]
        return finding


@pytest.mark.parametrize(
    ("uri", "text", "remedy"),
    [
        (
            f"{REGISTRY}/raysm:gpu",
            "there is no image",
            "aws ecr list-images --repository-name raysm",
        ),
        (f"{REGISTRY}/other:cpu", "there is no repository other", "aws ecr describe-repositories"),
        (IMAGE.replace(REGION, "us-east-1"), "is in us-east-1", "docker pull"),
    ],
)
def test_an_image_that_cannot_be_pulled_is_bad(uri, text, remedy):
    finding = image(uri)
    assert finding.state is State.BAD
    assert text in finding.text
    assert remedy in finding.remedy


def test_without_an_image_aws_own_is_looked_for_in_the_registry_of_the_region():
    with aws_account.account(image=None) as made:
        (finding,) = made.findings()["image"]
        assert "pytorch" in finding.text
        assert made.findings(Intent())["image"][0].state is State.UNKNOWN


def intent(subnet, group, *, count=2, requirements=(), wheels=(), **security):
    return Intent(
        cluster=Cluster("ml.m5.large", count=count),
        security=Security(subnets=(subnet,), security_groups=(group,), **security),
        requirements=requirements,
        wheels=wheels,
    )


def states(findings):
    return [finding.state for finding in findings]


def test_a_subnet_without_a_way_to_s3_is_bad_with_the_command_that_makes_one(account):
    subnet, group = account.vpc()
    found = account.findings(intent(subnet, group))["subnets"]
    assert found[1].state is State.BAD
    assert f"--service-name com.amazonaws.{REGION}.s3" in found[1].remedy
    assert "--route-table-ids rtb-" in found[1].remedy


def test_an_endpoint_leads_to_s3_and_to_no_package_index(account):
    found = account.findings(intent(*account.vpc(s3=True)))["subnets"]
    assert states(found) == [State.GOOD, State.GOOD, State.UNKNOWN]
    assert "index" in found[2].text


def test_requirements_without_a_way_to_an_index_are_bad_unless_they_travel(account):
    subnet, group = account.vpc(s3=True)
    found = account.findings(intent(subnet, group, requirements=("six",)))["subnets"]
    assert found[-1].state is State.BAD
    assert "--wheel" in found[-1].remedy
    found = account.findings(intent(subnet, group, requirements=("six",), wheels=("six.whl",)))[
        "subnets"
    ]
    assert found[-1].state is State.UNKNOWN


def test_awss_image_without_a_way_to_an_index_is_bad_unless_ray_travels_or_an_endpoint_leads_to_one():
    with aws_account.account(image=None) as made:
        subnet, group = made.vpc(s3=True)
        finding = made.findings(intent(subnet, group))["subnets"][-1]
        assert finding.state is State.BAD
        assert "Ray must be installed" in finding.text
        assert "raysm image" in finding.remedy
        travels = intent(subnet, group, wheels=("ray-2.60.0-cp312-cp312-manylinux2014_x86_64.whl",))
        assert made.findings(travels)["subnets"][-1].state is State.UNKNOWN
        vpc = made.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
        for part in ("api", "repositories"):
            service = f"com.amazonaws.{REGION}.codeartifact.{part}"
            made.ec2.create_vpc_endpoint(
                VpcId=vpc, ServiceName=service, VpcEndpointType="Interface", SubnetIds=[subnet]
            )
        index = f"arn:aws:codeartifact:{REGION}:{ACCOUNT}:repository/ours/pypi"
        named = replace(intent(subnet, group), pip_index=index)
        assert made.findings(named)["subnets"][-1].state is State.GOOD
        # An index within the network may be reached.
        own = replace(intent(subnet, group), pip_index="https://pip.example/simple")
        assert "the package index https://pip.example" in made.findings(own)["subnets"][-1].text
        assert made.findings(own)["subnets"][-1].state is State.UNKNOWN


def test_a_job_that_is_to_be_entered_needs_a_way_to_its_agents_service(account):
    subnet, group = account.vpc(s3=True)
    assert not any(
        "ssmmessages" in item.text for item in account.findings(intent(subnet, group))["subnets"]
    )
    lacking = account.findings(intent(subnet, group, remote_debug=True))["subnets"][-2]
    # The job itself runs.
    assert (lacking.state, lacking.needed) == (State.BAD, False)
    assert f"com.amazonaws.{REGION}.ssmmessages" in lacking.remedy
    assert f"--subnet-ids {subnet}" in lacking.remedy
    account.ec2.create_vpc_endpoint(
        VpcId=account.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"],
        ServiceName=f"com.amazonaws.{REGION}.ssmmessages",
        VpcEndpointType="Interface",
        SubnetIds=[subnet],
    )
    found = account.findings(intent(subnet, group, remote_debug=True))["subnets"]
    assert not any("ssmmessages" in item.text for item in found)


def test_a_subnet_needs_two_addresses_for_each_instance(account):
    found = account.findings(intent(*account.vpc(nat=True, addresses=28), count=6))["subnets"]
    assert found[0].state is State.BAD


def test_a_group_has_to_let_its_own_members_in(account):
    subnet, group = account.vpc(nat=True)
    inwards, outwards = account.findings(intent(subnet, group))["groups"]
    assert inwards.state is State.BAD
    assert f"authorize-security-group-ingress --group-id {group}" in inwards.remedy
    assert outwards.state is State.GOOD
    account.let_in(group)
    assert states(account.findings(intent(subnet, group))["groups"]) == [State.GOOD, State.GOOD]


def test_traffic_that_is_encrypted_takes_two_protocols_more(account):
    subnet, group = account.vpc(nat=True)
    account.let_in(group, IpProtocol="tcp", FromPort=0, ToPort=65535)
    (inwards, _) = account.findings(intent(subnet, group, encrypt_traffic=True))["groups"]
    assert "udp port 500, 50" in inwards.text
