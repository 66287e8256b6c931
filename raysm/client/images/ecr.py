"""Registries of Amazon ECR: whose they are, the password for them, and repositories that are made where missing."""

import base64
import re
from dataclasses import dataclass, field

from raysm.client.service import Service
from raysm.errors import ServiceError

__all__ = ["Registry", "Repository", "log_in_to", "make_repository", "registry_in"]

# ACCOUNT.dkr-ecr.REGION.on.aws is how a registry is called that is reached by IPv6 too:
# https://docs.aws.amazon.com/AmazonECR/latest/userguide/ecr-requests.html
HOST = re.compile(r"(?P<account>\d{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.[a-z0-9.-]+")
"""``123456789012.dkr.ecr.eu-west-1.amazonaws.com``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Registry:
    """Where one may log in."""

    host: str
    """``123456789012.dkr.ecr.eu-west-1.amazonaws.com``."""
    password: str = field(repr=False)
    """Holds for twelve hours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository:
    """One repository of a registry, as an image's URI names it."""

    host: str
    """The registry's."""
    region: str
    """Of the registry."""
    account: str
    """Whose it is."""
    name: str
    """Of the repository, ``team/raysm``."""


def registry_in(uri: str) -> Repository | None:
    """Return the repository of ECR that an image's URI names; None where it is not in ECR."""
    host, slash, rest = uri.partition("/")
    named = HOST.fullmatch(host)
    if named is None or not slash:
        return None
    name = re.split(r"[:@]", rest, maxsplit=1)[0]
    return Repository(host=host, region=named["region"], account=named["account"], name=name)


def log_in_to(service: Service) -> Registry:
    """Return the account's own registry of the service's region, with the password.

    The password opens all registries from which these credentials may pull, AWS's own for one
    (https://docs.aws.amazon.com/AmazonECR/latest/userguide/registry_auth.html).

    Raises:
        ServiceError: ECR refuses.
    """
    granted = service.call("ecr", "get_authorization_token")["authorizationData"][0]
    # The token is made for HTTP's Basic: user and password in one.
    _, _, password = base64.b64decode(granted["authorizationToken"]).decode().partition(":")
    return Registry(host=granted["proxyEndpoint"].removeprefix("https://"), password=password)


def make_repository(service: Service, name: str) -> bool:
    """Make a repository of the account's own registry; return whether it was missing.

    Raises:
        ServiceError: ECR refuses.
    """
    try:
        service.call("ecr", "describe_repositories", repositoryNames=[name])
        return False
    except ServiceError as error:
        if not error.code.startswith("RepositoryNotFound"):
            raise
    try:
        service.call("ecr", "create_repository", repositoryName=name)
    except ServiceError as error:
        # Somebody else was as fast: it is there, which is all that was wanted.
        if not error.code.startswith("RepositoryAlreadyExists"):
            raise
    return True
