"""Subnets with a way to S3 and an index, and groups whose members reach each other."""

from dataclasses import replace

from raysm.client.doctor.case import Intent, State
from raysm.request import Cluster, Security
from tests.support import aws_account
from tests.support.sagemaker import ACCOUNT, REGION


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
    found = account.findings(intent(subnet, group, requirements=("six",), wheels=("six.whl",)))["subnets"]
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
    assert not any("ssmmessages" in item.text for item in account.findings(intent(subnet, group))["subnets"])
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
