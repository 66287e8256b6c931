"""The VPC of a job: whether its subnets lead to S3 and to a package index, and whether its instances reach each other.

SageMaker pulls the image and writes the log over a network of its own; the containers, and the channels that are
brought into them, go through the subnets
(https://docs.aws.amazon.com/sagemaker/latest/dg/train-vpc.html). An instance has no public address there: an internet
gateway is no way out for it, a NAT gateway is.
"""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from raysm.client.doctor.case import Case
from raysm.client.doctor.finding import Finding, bad, good, unknown
from raysm.errors import ServiceError

__all__ = ["look_at_groups", "look_at_subnets"]

Item: TypeAlias = Mapping[str, Any]
"""One thing of an answer of EC2."""

EVERYWHERE = "0.0.0.0/0"
ALL = "-1"
"""How EC2 says every protocol."""

TARGETS = (
    "TransitGatewayId",
    "CoreNetworkArn",
    "VpcPeeringConnectionId",
    "NetworkInterfaceId",
    "InstanceId",
    "LocalGatewayId",
    "GatewayId",
)
"""Where a route may lead beside a NAT gateway: by GatewayId also to an endpoint of a firewall, or into a VPN."""

INTERNET = "igw-"
"""Begins the name of an internet gateway."""

ADDRESSES = 2
"""Private addresses that an instance of a training job takes of its subnet, by AWS's guide."""

OWN_WAY = ("ecr.api", "ecr.dkr", "logs")
"""Services that SageMaker reaches by itself, as AWS's guide has it: only code in the container needs an endpoint."""

AGENT = "ssmmessages"
"""What the agent in a container speaks with, by the job's subnets
(https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html)."""

ESP, IKE = "50", 500
"""The protocol and the UDP port of traffic between containers that is encrypted
(https://docs.aws.amazon.com/sagemaker/latest/dg/train-encrypt.html)."""


def look_at_subnets(case: Case) -> Iterator[Finding]:
    """Yield of each subnet whether it has addresses for the instances, and a way to S3 and to an index."""
    if not case.intent.security.subnets:
        return
    try:
        subnets = _subnets(case)
    except ServiceError as error:
        # EC2 refuses the whole call for one of several that is not there.
        if not error.code.startswith("InvalidSubnet"):
            raise
        yield bad(str(error), f"aws ec2 describe-subnets --region {case.region} shows what there is")
        return
    vpcs = sorted({subnet["VpcId"] for subnet in subnets})
    if len(vpcs) > 1:
        yield bad(f"the subnets are of several VPCs: {', '.join(vpcs)}", "name subnets of one")
        return
    # Not by subnet: one without a table of its own has the VPC's main table, which names no subnets.
    of_vpc = [{"Name": "vpc-id", "Values": vpcs}]
    tables = case.call("ec2", "describe_route_tables", Filters=of_vpc)["RouteTables"]
    endpoints = case.call("ec2", "describe_vpc_endpoints", Filters=of_vpc)["VpcEndpoints"]
    for subnet in subnets:
        yield _addresses(case, subnet)
        yield from _ways(case, subnet, _table_of(subnet["SubnetId"], tables), endpoints)


def _subnets(case: Case) -> list[Item]:
    return list(case.call("ec2", "describe_subnets", SubnetIds=list(case.intent.security.subnets))["Subnets"])


def _addresses(case: Case, subnet: Item) -> Finding:
    free, name = subnet["AvailableIpAddressCount"], subnet["SubnetId"]
    # SageMaker chooses one of the subnets: any of them may have to hold all instances.
    needed = ADDRESSES * max(1, case.intent.size)
    text = f"{name} has {free} free addresses, the job takes {needed}"
    return good(text) if free >= needed else bad(text, "name a larger subnet")


def _ways(case: Case, subnet: Item, table: Item, endpoints: Sequence[Item]) -> Iterator[Finding]:
    name, region = subnet["SubnetId"], case.region
    default = _default_route(table)
    if default.get("NatGatewayId"):
        yield good(f"{name} reaches S3, ECR, logs and package indexes by {default['NatGatewayId']}")
        return
    other = next((default[key] for key in TARGETS if default.get(key)), "")
    if other and not other.startswith(INTERNET):
        yield unknown(f"{name} leads out by {other}, behind which the doctor does not see")
        return
    if any(_leads(endpoint, "s3", table, region) for endpoint in endpoints):
        yield good(f"{name} reaches S3 by an endpoint")
    else:
        yield bad(
            f"{name} has no way to S3: neither a NAT gateway nor an endpoint",
            f"aws ec2 create-vpc-endpoint --vpc-id {subnet['VpcId']} --service-name com.amazonaws.{region}.s3 "
            f"--route-table-ids {table['RouteTableId']} --region {region}",
        )
    lacking = [service for service in OWN_WAY if not any(_leads(item, service, table, region) for item in endpoints)]
    if lacking:
        yield unknown(
            f"{name} has no endpoint of {', '.join(lacking)}: SageMaker itself needs none, by AWS's guide; code that "
            "calls these services does"
        )
    if case.intent.security.remote_debug and not any(_leads(item, AGENT, table, region) for item in endpoints):
        yield bad(
            f"{name} has no way to {AGENT}: tunnels, shells and the dashboard of the job would not work",
            f"aws ec2 create-vpc-endpoint --vpc-id {subnet['VpcId']} --vpc-endpoint-type Interface --service-name "
            f"com.amazonaws.{region}.{AGENT} --subnet-ids {name} --private-dns-enabled --region {region}",
            # The job itself runs all the same.
            needed=False,
        )
    yield _index(case, name)


def _default_route(table: Item) -> Item:
    """Return the route to everywhere; nothing where there is none, or where it leads to what is gone."""
    for route in table["Routes"]:
        if route.get("DestinationCidrBlock") == EVERYWHERE and route.get("State") != "blackhole":
            return dict(route)
    return {}


def _index(case: Case, subnet: str) -> Finding:
    """Return whether pip finds what it has to install."""
    text, requirements = f"{subnet} has no way to a package index", case.intent.requirements
    if requirements and not case.intent.wheels:
        return bad(f"{text}, and {', '.join(requirements)} must be installed", "let them travel: --wheel FILE")
    return unknown(f"{text}: the image has to bring Ray, or it travels as wheels")


def _leads(endpoint: Item, service: str, table: Item, region: str) -> bool:
    """Whether an endpoint of a service can be used from a route table: a gateway that it names, or an interface."""
    if not endpoint["ServiceName"].endswith(f".{region}.{service}") or endpoint.get("State") != "available":
        return False
    # A gateway is a route, of these tables alone; an interface has addresses, which the whole VPC reaches.
    return endpoint["VpcEndpointType"] != "Gateway" or table["RouteTableId"] in endpoint.get("RouteTableIds", ())


def _table_of(subnet: str, tables: Sequence[Item]) -> Item:
    """Return the route table of a subnet: its own, or else the VPC's main one."""
    # The word stands in a remedy, for the reader to replace, should no table be listed.
    main: Item = {"RouteTableId": "ROUTE-TABLE", "Routes": []}
    for table in tables:
        for association in table["Associations"]:
            if association.get("SubnetId") == subnet:
                return table
            if association.get("Main"):
                main = table
    return main


def look_at_groups(case: Case) -> Iterator[Finding]:
    """Yield whether the security groups let the instances reach each other."""
    ids = case.intent.security.security_groups
    if not ids or case.intent.size == 1:
        return
    try:
        groups = case.call("ec2", "describe_security_groups", GroupIds=list(ids))["SecurityGroups"]
    except ServiceError as error:
        if not error.code.startswith("InvalidGroup"):
            raise
        yield bad(str(error), f"aws ec2 describe-security-groups --region {case.region} shows what there is")
        return
    # A rule may let the subnets' addresses through, and name no group.
    networks = [subnet["CidrBlock"] for subnet in _subnets(case)]
    for direction, key, word in (("ingress", "IpPermissions", "from"), ("egress", "IpPermissionsEgress", "to")):
        rules = [rule for group in groups for rule in group[key] if _is_about(rule, ids, networks)]
        closed = [protocol for protocol in _needed(case) if not any(_lets(rule, *protocol) for rule in rules)]
        if not closed:
            yield good(f"{', '.join(ids)} let traffic through {word} each other")
            continue
        shown = ", ".join(name if port is None else f"{name} port {port}" for name, port in closed)
        yield bad(
            f"{', '.join(ids)} let no {shown} through {word} each other",
            f"aws ec2 authorize-security-group-{direction} --group-id {ids[0]} --region {case.region} "
            f"--ip-permissions 'IpProtocol=-1,UserIdGroupPairs=[{{GroupId={ids[0]}}}]'",
        )


def _needed(case: Case) -> list[tuple[str, int | None]]:
    """Return the protocols that instances speak with each other; without a port, on all of them."""
    # All of TCP, not the ports of raysm.Ports: NCCL and gloo take whatever port is free.
    needed: list[tuple[str, int | None]] = [("tcp", None)]
    return [*needed, ("udp", IKE), (ESP, None)] if case.intent.security.encrypt_traffic else needed


def _is_about(rule: Item, groups: Sequence[str], networks: Sequence[str]) -> bool:
    """Whether a rule concerns all traffic between members of the groups."""
    if any(pair.get("GroupId") in groups for pair in rule.get("UserIdGroupPairs", ())):
        return True
    ranges = [ipaddress.IPv4Network(item["CidrIp"], strict=False) for item in rule.get("IpRanges", ())]
    return all(any(ipaddress.IPv4Network(network).subnet_of(wide) for wide in ranges) for network in networks)


def _lets(rule: Item, protocol: str, port: int | None) -> bool:
    if rule["IpProtocol"] == ALL:
        return True
    if rule["IpProtocol"] != protocol:
        return False
    first, last = rule.get("FromPort", 0), rule.get("ToPort", 65535)
    if port is None:
        # ESP has no ports; and nothing listens on port 0, which a rule for all of them may leave out.
        return protocol == ESP or (first <= 1 and last >= 65535)
    return bool(first <= port <= last)
