"""Subnets with a way to S3 and an index, and groups whose members reach each other."""

from types import SimpleNamespace

import pytest

from raysm.client.doctor.case import Intent, State
from raysm.client.doctor.network import check_subnets
from raysm.request import Cluster, Security
from tests.support.sagemaker import REGION


def intent(subnet, group, *, count=2, requirements=(), wheels=(), **security):
    return Intent(
        cluster=Cluster("ml.m5.large", count=count),
        security=Security(subnets=(subnet,), security_groups=(group,), **security),
        requirements=requirements,
        wheels=wheels,
    )


def states(findings):
    return [finding.state for finding in findings]


def test_a_nat_gateway_leads_everywhere(account):
    found = account.findings(intent(*account.vpc(nat=True)))["subnets"]
    assert states(found) == [State.GOOD, State.GOOD]
    assert "nat-" in found[1].text


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


def gateway_of(account, subnet):
    """Attach an internet gateway to the subnet's VPC; return it and the subnet's route table."""
    vpc = account.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    gateway = account.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    account.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    tables = account.ec2.describe_route_tables(Filters=[{"Name": "association.subnet-id", "Values": [subnet]}])
    return gateway, tables["RouteTables"][0]["RouteTableId"]


def test_an_internet_gateway_is_no_way_out_for_an_instance_without_a_public_address(account):
    subnet, group = account.vpc()
    gateway, table = gateway_of(account, subnet)
    account.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    assert account.findings(intent(subnet, group))["subnets"][1].state is State.BAD


@pytest.mark.parametrize(
    "target",
    [
        {"TransitGatewayId": "tgw-1"},
        {"CoreNetworkArn": "arn:aws:networkmanager::123456789012:core-network/core-network-1"},
        {"VpcPeeringConnectionId": "pcx-1"},
        {"NetworkInterfaceId": "eni-1", "InstanceId": "i-1"},
        {"LocalGatewayId": "lgw-1"},
        {"GatewayId": "vpce-1"},
        {"GatewayId": "vgw-1"},
    ],
)
def test_a_way_that_leads_to_where_the_doctor_does_not_see_is_neither_good_nor_bad(target):
    # Of a case of the test's own: moto lets a route lead to nothing but what it has made.
    table = {"RouteTableId": "rtb-1", "Associations": [{"Main": True}]}
    answers = {
        "describe_subnets": {"Subnets": [{"SubnetId": "subnet-1", "VpcId": "vpc-1", "AvailableIpAddressCount": 99}]},
        "describe_route_tables": {
            "RouteTables": [{**table, "Routes": [{"DestinationCidrBlock": "0.0.0.0/0", "State": "active", **target}]}]
        },
        "describe_vpc_endpoints": {"VpcEndpoints": []},
    }
    case = SimpleNamespace(
        call=lambda service, operation, **_: answers[operation], region=REGION, intent=intent("subnet-1", "sg-1")
    )
    _, found = check_subnets(case)
    assert (found.state, next(iter(target.values())) in found.text) == (State.UNKNOWN, True)


def test_a_subnet_needs_two_addresses_for_each_instance(account):
    found = account.findings(intent(*account.vpc(nat=True, addresses=28), count=6))["subnets"]
    assert found[0].state is State.BAD


def test_subnets_and_groups_that_are_not_there_are_bad(account):
    findings = account.findings(intent("subnet-12345678", "sg-12345678"))
    assert states(findings["subnets"]) == [State.BAD]
    assert states(findings["groups"]) == [State.BAD]


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
