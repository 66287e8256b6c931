"""The doctor's findings and their order, and each check of an account but those of permissions."""

import json
from dataclasses import replace

import pytest
from botocore.exceptions import NoCredentialsError

from raysm.core.request import Cluster, Input, InstanceGroup, Security
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.account.case import Intent, State, good
from raysm.features.account.checks import Check, run_check
from tests.support import aws_account
from tests.support.aws_account import BUCKET, ROLE
from tests.support.sagemaker import ACCOUNT, IMAGE, REGION, SESSION, refusal


def types(account, name, **more):
    return account.findings(Intent(cluster=Cluster(name), **more))["instance type"][0]


def test_an_account_with_all_that_a_job_needs_is_good(account):
    findings = [finding for found in account.findings().values() for finding in found]
    assert {finding.state for finding in findings if finding.needed} == {State.GOOD}


def test_calls_that_go_elsewhere_are_said_with_the_variable_to_unset(account):
    account.clients["s3"] = SESSION.client(
        "s3", region_name="eu-west-1", endpoint_url="http://127.0.0.1:5000"
    )
    (finding,) = account.findings()["endpoint"]
    assert finding.state is State.BAD
    assert "s3 to http://127.0.0.1:5000" in finding.text
    assert "unset AWS_ENDPOINT_URL" in finding.remedy


@pytest.mark.parametrize(
    ("region", "state", "remedy"),
    [("eu-west-1", State.GOOD, ""), ("eu-wets-1", State.UNKNOWN, "check its name")],
)
def test_a_region_is_compared_with_those_that_boto3_knows(region, state, remedy):
    with aws_account.account(region=region) as made:
        (finding,) = made.findings()["region"]
    assert finding.state is state
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    "error", [NoCredentialsError(), refusal("ExpiredToken", "expired", "GetCallerIdentity")]
)
def test_credentials_that_are_no_good_are_said_with_how_to_get_them_and_nothing_else_asks(
    account, error
):
    account.fail("get_caller_identity", error)
    findings = account.findings()
    assert findings["credentials"][0].state is State.BAD
    assert "aws" in findings["credentials"][0].remedy
    assert findings["bucket"][0].text == "could not look without credentials"
    assert findings["instance type"][0].state is State.GOOD


def test_a_type_that_is_newer_than_botocore_is_unknown_and_a_slip_is_bad(account):
    assert types(account, "ml.m99i.48xlarge").state is State.UNKNOWN
    assert "boto3" in types(account, "ml.m99i.48xlarge").remedy
    assert types(account, "m5.large").state is State.BAD
    assert "ml.m5.large" in types(account, "m5.large").remedy


AWS_OWN = "763104351884.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("image", "state", "said"),
    [
        (f"{AWS_OWN}/pytorch:2.13-cu133-amzn2023-sagemaker", State.GOOD, "CUDA 12.8 or later"),
        (f"{AWS_OWN}/pytorch-training:2.3.0-gpu-py311-cu121", State.BAD, "has CUDA 12.1"),
        (IMAGE, State.UNKNOWN, "is not known"),
    ],
)
def test_cuda_of_the_image_is_compared_with_the_gpus_of_the_type(image, state, said):
    intent = Intent(cluster=Cluster("ml.p6-b200.48xlarge"))
    with aws_account.account(image=image) as made:
        (finding,) = made.findings(intent)["CUDA"]
    # Of most images of users it cannot be known, and their jobs run nevertheless.
    assert (finding.state, finding.needed) == (state, state is not State.UNKNOWN)
    assert said in finding.text


def test_cuda_that_only_a_tag_names_wrongly_is_no_reason_to_send_nothing():
    with aws_account.account(image=f"{IMAGE.partition(':')[0]}:cu121") as made:
        (finding,) = made.findings(Intent(cluster=Cluster("ml.p6-b200.48xlarge")))["CUDA"]
    assert (finding.state, finding.needed) == (State.BAD, False)
    assert "CUDA 12.8 or later" in finding.remedy


@pytest.mark.parametrize(
    ("image", "state"),
    [
        (f"{AWS_OWN}/pytorch:2.13-cu133-amzn2023-sagemaker", State.GOOD),
        (IMAGE, State.UNKNOWN),
    ],
)
def test_types_with_efa_are_told_which_image_has_its_plugin(image, state):
    with aws_account.account(image=image) as made:
        (finding,) = made.findings(Intent(cluster=Cluster("ml.p5.48xlarge", count=2)))["EFA"]
    assert finding.state is state
    assert finding.needed is (state is not State.UNKNOWN)
    assert image in finding.text
    assert ("EFA_INSTALLER" in finding.remedy) is (state is State.UNKNOWN)


@pytest.mark.parametrize(
    "cluster", [Cluster("ml.p5.48xlarge"), Cluster("ml.g5.xlarge", count=2), Cluster("ml.m5.large")]
)
def test_nothing_is_said_of_efa_where_instances_have_none_or_are_alone(account, cluster):
    assert "EFA" not in account.findings(Intent(cluster=cluster))


def quotas(account, cluster, **more):
    return account.findings(Intent(cluster=cluster, **more))["quota"]


def test_a_quota_is_compared_with_the_number_of_instances(account):
    assert quotas(account, Cluster("ml.m5.large", count=4))[0].state is State.GOOD
    (finding,) = quotas(account, Cluster("ml.m5.large", count=5))
    assert finding.state is State.BAD
    assert "request-service-quota-increase" in finding.remedy
    assert "--desired-value 5" in finding.remedy


def test_groups_of_one_type_are_counted_together_and_warm_pools_beside(account):
    groups = (InstanceGroup("a", "ml.m5.large", 2), InstanceGroup("b", "ml.m5.large", 3))
    assert quotas(account, Cluster(groups=groups))[0].state is State.BAD
    warm = quotas(account, Cluster("ml.m5.large", count=2, keep_alive_s=60))
    assert "ml.m5.large for training warm pool usage" in warm[1].text


def test_a_training_plan_has_its_capacity(account):
    plan = "arn:aws:sagemaker:eu-west-1:123456789012:training-plan/p"
    assert quotas(account, Cluster("ml.m5.large", training_plan=plan))[0].state is State.UNKNOWN


def test_of_a_choice_of_types_one_whose_quota_suffices_is_enough(account):
    account.quotas.applied["ml.c5.large for training job usage"] = 0
    account.quotas.applied["ml.g5.xlarge for training job usage"] = 2

    def states(*types):
        cluster = Cluster(types[0], count=2, alternatives=types[1:])
        return [(finding.state, finding.needed) for finding in quotas(account, cluster)]

    assert states("ml.c5.large") == [(State.BAD, True)]
    assert states("ml.c5.large", "ml.g5.xlarge") == [(State.BAD, False), (State.GOOD, True)]
    # Of one that nobody lists it is not known: it may do.
    assert states("ml.c5.large", "ml.p3.2xlarge") == [(State.BAD, False), (State.UNKNOWN, True)]
    account.quotas.applied["ml.g5.xlarge for training job usage"] = 1
    assert states("ml.c5.large", "ml.g5.xlarge") == [(State.BAD, True), (State.BAD, True)]


def plugin(folder, monkeypatch, version=None):
    """Put a session-manager-plugin of a version on the PATH, or none."""
    if version is not None:
        path = folder / "session-manager-plugin"
        path.write_text(f"#!/bin/sh\necho {version}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=None)


@pytest.mark.parametrize(
    ("version", "said"), [(None, "not installed"), ("1.2.497.0", "has version 1.2.497.0")]
)
def test_without_a_new_enough_plugin_the_doctor_says_how_to_install_it(
    account, tmp_path, monkeypatch, version, said
):
    plugin(tmp_path, monkeypatch, version)
    (finding,) = account.findings()["tunnel"]
    assert (finding.state, finding.needed) == (State.BAD, False)
    assert said in finding.text
    assert "brew install --cask session-manager-plugin" in finding.remedy


def carried_out(look):
    return list(run_check(Check(name="thing", look=look), None))


def failing(error, *before):
    def look(case):
        yield from before
        raise error

    return look


@pytest.mark.parametrize(
    "code", ["AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"]
)
def test_a_denied_question_is_one_that_could_not_be_looked_at(code):
    (finding,) = carried_out(failing(ServiceError("get_role: no", code=code, remedy="add it")))
    assert finding.state is State.UNKNOWN
    assert "raysm doctor --policy user" in finding.remedy


def test_a_service_that_cannot_be_reached_leaves_what_was_seen_before():
    findings = carried_out(
        failing(ServiceError("get_role: timed out", is_transient=True), good("first"))
    )
    assert [finding.state for finding in findings] == [State.GOOD, State.UNKNOWN]
    assert "timed out" in findings[1].text
    (finding,) = carried_out(failing(InvalidRequest("the image is missing", remedy="give one")))
    assert (finding.state, finding.text, finding.remedy) == (
        State.BAD,
        "the image is missing",
        "give one",
    )
    # A page in an error is one line, and cut off.
    (finding,) = carried_out(failing(ServiceError("x: <html>\n<p>\n" + "word " * 200, code="500")))
    assert "\n" not in finding.text
    assert len(finding.text) < 350


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


def test_whether_a_file_system_can_be_mounted_is_not_known_before_the_job(account):
    (finding,) = inputs(account, a="efs://fs-0123456789abcdef0/images")
    assert finding.state is State.UNKNOWN


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
