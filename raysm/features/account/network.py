"""Checks of a job's VPC: its subnets lead to S3, and its instances can reach each other.

Containers and channels use the subnets, not the image and the log. Instances have no public address
there: an internet gateway does not help
(https://docs.aws.amazon.com/sagemaker/latest/dg/train-vpc.html).
"""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from raysm.core.client.images import has_ray
from raysm.core.request.external import CodeArtifact
from raysm.errors import ServiceError
from raysm.features.account.case import Case, Finding, bad, good, unknown

Item: TypeAlias = Mapping[str, Any]
"""One item of an answer of EC2."""

ADDRESSES = 2
"""Private addresses that an instance of a training job takes of its subnet, by AWS's guide."""

AGENT = "ssmmessages"
"""Tunnels and shells need it
(https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html)."""

ENCRYPTED = (("udp", 500), ("50", None))
"""IKE and ESP (https://docs.aws.amazon.com/sagemaker/latest/dg/train-encrypt.html)."""


def check_subnets(case: Case) -> Iterator[Finding]:
    """Yield whether each subnet has enough addresses, and a way to S3 and a package index."""
    if not case.intent.security.subnets:
        return
    try:
        subnets = _subnets(case)
    except ServiceError as error:
        if not error.code.startswith("InvalidSubnet"):
            raise
        yield bad(
            error.problem, f"aws ec2 describe-subnets --region {case.region} lists the subnets"
        )
        return
    vpcs = sorted({subnet["VpcId"] for subnet in subnets})
    if len(vpcs) > 1:
        yield bad(f"the subnets are of several VPCs: {', '.join(vpcs)}", "name subnets of one VPC")
        return
    of_vpc = [{"Name": "vpc-id", "Values": vpcs}]
    tables = case.call("ec2", "describe_route_tables", Filters=of_vpc)["RouteTables"]
    endpoints = case.call("ec2", "describe_vpc_endpoints", Filters=of_vpc)["VpcEndpoints"]
    for subnet in subnets:
        # SageMaker chooses one of the subnets: each may have to hold all instances.
        free = subnet["AvailableIpAddressCount"]
        needed = ADDRESSES * max(1, case.intent.size)
        text = f"{subnet['SubnetId']} has {free} free addresses, the job takes {needed}"
        yield good(text) if free >= needed else bad(text, "name a larger subnet")
        yield from _check_routes(case, subnet, _table_of(subnet["SubnetId"], tables), endpoints)


def _subnets(case: Case) -> list[Item]:
    return list(
        case.call("ec2", "describe_subnets", SubnetIds=list(case.intent.security.subnets))[
            "Subnets"
        ]
    )


def _table_of(subnet: str, tables: Sequence[Item]) -> Item:
    """Return the route table of a subnet: its own, else the VPC's main one."""
    main: Item = {"RouteTableId": "ROUTE-TABLE", "Routes": []}
    for table in tables:
        for association in table["Associations"]:
            if association.get("SubnetId") == subnet:
                return table
            if association.get("Main"):
                main = table
    return main


def _check_routes(
    case: Case, subnet: Item, table: Item, endpoints: Sequence[Item]
) -> Iterator[Finding]:
    name = subnet["SubnetId"]
    intent = case.intent
    default: Item = {}
    for route in table["Routes"]:
        if route.get("DestinationCidrBlock") == "0.0.0.0/0" and route.get("State") != "blackhole":
            default = route
    if default.get("NatGatewayId"):
        yield good(f"{name} reaches S3, ECR, logs and package indexes by {default['NatGatewayId']}")
        return
    keys = [key for key in default if key.endswith(("Id", "Arn"))]
    others = [
        default[key] for key in keys if default[key] and not str(default[key]).startswith("igw-")
    ]
    if others:
        yield unknown(f"{name} leads out by {others[0]}, behind which the doctor does not see")
        return
    make = (
        f"aws ec2 create-vpc-endpoint --vpc-id {subnet['VpcId']} --region {case.region} "
        "--service-name"
    )
    if _has_endpoint("s3", case.region, table, endpoints):
        yield good(f"{name} reaches S3 by an endpoint")
    else:
        yield bad(
            f"{name} has no way to S3: neither a NAT gateway nor an endpoint",
            f"{make} com.amazonaws.{case.region}.s3 --route-table-ids {table['RouteTableId']}",
        )
    if intent.security.remote_debug and not _has_endpoint(AGENT, case.region, table, endpoints):
        yield bad(
            f"{name} has no way to {AGENT}: tunnels, shells and the dashboard of the job would "
            "not work",
            f"{make} com.amazonaws.{case.region}.{AGENT} --vpc-endpoint-type Interface "
            f"--subnet-ids {name} "
            "--private-dns-enabled",
            needed=False,
        )
    lacks_ray = not has_ray(case.service.target.image, intent.wheels)
    missing = [*(("Ray",) if lacks_ray else ()), *(() if intent.wheels else intent.requirements)]
    has_own = intent.pip_index is not None and CodeArtifact.of(intent.pip_index) is None
    # CodeArtifact's endpoint leads to a repository of the account, if the job names one.
    has_index = intent.pip_index is not None and all(
        _has_endpoint(f"codeartifact.{part}", case.region, table, endpoints)
        for part in ("api", "repositories")
    )
    if has_own:
        yield unknown(
            f"{name} has no way out: the package index {intent.pip_index} has to be in the VPC or "
            "beside it"
        )
    elif has_index:
        yield good(f"{name} reaches the package index {intent.pip_index} by endpoints")
    elif missing:
        yield bad(
            f"{name} has no way to a package index, and {', '.join(missing)} must be installed",
            "name an image that has them (raysm image prints how to build one), or let the "
            "packages travel: "
            "--wheel FILE",
        )
    else:
        yield unknown(
            f"{name} has no way to a package index: the image has to bring Ray, or it travels as "
            "wheels"
        )


def _has_endpoint(service: str, region: str, table: Item, endpoints: Sequence[Item]) -> bool:
    # A gateway endpoint is a route of the tables that it lists; an interface serves the whole VPC.
    return any(
        endpoint["ServiceName"].endswith(f".{region}.{service}")
        and endpoint.get("State") == "available"
        and (
            endpoint["VpcEndpointType"] != "Gateway"
            or table["RouteTableId"] in endpoint.get("RouteTableIds", ())
        )
        for endpoint in endpoints
    )


def check_groups(case: Case) -> Iterator[Finding]:
    ids = case.intent.security.security_groups
    if not ids or case.intent.size == 1:
        return
    try:
        groups = case.call("ec2", "describe_security_groups", GroupIds=list(ids))["SecurityGroups"]
    except ServiceError as error:
        if not error.code.startswith("InvalidGroup"):
            raise
        yield bad(
            error.problem,
            f"aws ec2 describe-security-groups --region {case.region} lists the groups",
        )
        return
    networks = [ipaddress.IPv4Network(subnet["CidrBlock"]) for subnet in _subnets(case)]
    # All TCP ports: NCCL and gloo take any free one.
    needed = [("tcp", None), *(ENCRYPTED if case.intent.security.encrypt_traffic else ())]
    for direction, key, word in (
        ("ingress", "IpPermissions", "from"),
        ("egress", "IpPermissionsEgress", "to"),
    ):
        rules = [rule for group in groups for rule in group[key] if _is_about(rule, ids, networks)]
        missing = [
            (name, port)
            for name, port in needed
            if not any(_allows(rule, name, port) for rule in rules)
        ]
        closed = [name if port is None else f"{name} port {port}" for name, port in missing]
        if not closed:
            yield good(f"{', '.join(ids)} allow traffic {word} each other")
            continue
        yield bad(
            f"{', '.join(ids)} do not allow {', '.join(closed)} {word} each other",
            f"aws ec2 authorize-security-group-{direction} --group-id {ids[0]} --region "
            f"{case.region} "
            f"--ip-permissions 'IpProtocol=-1,UserIdGroupPairs=[{{GroupId={ids[0]}}}]'",
        )


def _is_about(rule: Item, groups: Sequence[str], networks: Sequence[ipaddress.IPv4Network]) -> bool:
    """Return whether a rule allows all members of the groups, by group or by address."""
    if any(pair.get("GroupId") in groups for pair in rule.get("UserIdGroupPairs", ())):
        return True
    ranges = [
        ipaddress.IPv4Network(item["CidrIp"], strict=False) for item in rule.get("IpRanges", ())
    ]
    return all(any(network.subnet_of(wide) for wide in ranges) for network in networks)


def _allows(rule: Item, protocol: str, port: int | None) -> bool:
    first = rule.get("FromPort", 0)
    last = rule.get("ToPort", 65535)
    if rule["IpProtocol"] == "-1":
        return True
    if rule["IpProtocol"] != protocol:
        return False
    # ESP, protocol 50, has no ports.
    return protocol == "50" or (
        (first <= 1 and last >= 65535) if port is None else bool(first <= port <= last)
    )
