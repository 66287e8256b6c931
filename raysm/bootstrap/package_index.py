"""Find pip's package index and check that this instance can reach it.

In a VPC without NAT, packets to an index are dropped. pip would then try for a minute and a half for each package, on
every instance that the user pays for.
"""

import asyncio
import contextlib
import itertools
import socket
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from raysm.bootstrap.address import backoff, look_up, port_answers
from raysm.contract.store import put
from raysm.errors import InvalidRequest
from raysm.request.external import CodeArtifact

PATIENCE_S = 12.0
"""Seconds for a way to the index: a network that has just come up gets some, one that drops packets needs no more."""
PORTS = {"https": 443, "http": 80}
TOKEN_S = 8
"""Seconds for each of the two calls that CodeArtifact needs."""


def check_reachable(url: str, patience_s: float = PATIENCE_S) -> None:
    """Return as soon as something answers where the index is, or where the proxy to it is.

    Args:
        url: Of the index; a folder of this instance is reached at once.
        patience_s: How long to try.

    Raises:
        InvalidRequest: Nothing answers; one sentence with the remedies.
    """
    host, port = _first_hop(url)
    if not host:
        return
    reason = asyncio.run(_knock(host, port, patience_s))
    if reason:
        raise InvalidRequest(
            f"there is no way from this instance to the package index {_without_credentials(url)}: {reason} (tried for "
            f"{patience_s:g} s); give the subnets a NAT, name an index that they reach (pip_index), let the packages "
            "travel (wheels), or take an image that has them"
        )


def _first_hop(url: str) -> tuple[str, int]:
    """Return host and port of where a request for ``url`` goes first; an empty host for a file."""
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and parts.hostname and not urllib.request.proxy_bypass(parts.hostname):
        # A proxy may be written without its scheme.
        parts = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    return parts.hostname or "", parts.port or PORTS.get(parts.scheme, 443)


async def _knock(host: str, port: int, patience_s: float) -> str:
    """Return why nothing answers at ``host``; empty as soon as something does."""
    reason = f"the name {host} does not resolve"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            for attempt in itertools.count():
                with contextlib.suppress(OSError):  # a resolver, too, may come up late
                    addresses = await look_up(host, lambda name: _addresses(name, port))
                    reason = f"{host} does not answer on port {port}"
                    if await _any_answers(addresses, port):
                        return ""
                await asyncio.sleep(backoff(attempt))
    return reason


async def _any_answers(addresses: Iterable[str], port: int) -> bool:
    # All at once: of the several addresses of a large index any will do, and silence is the same of all.
    for answers in asyncio.as_completed([port_answers(address, port) for address in addresses]):
        if await answers:
            return True
    return False


def _addresses(host: str, port: int) -> list[str]:
    return sorted({str(item[4][0]) for item in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)})


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def pip_config(folder: Path, url: str) -> Mapping[str, str]:
    """Return the variables that tell pip to take packages from ``url``, by a file that only its owner can read.

    Neither an argument nor a variable: others may see those, and the address may hold a token.
    """
    path = folder / "pip.conf"
    # Both: of the files of an image the command's own section would count more than this file's common one.
    put(path, f"[global]\nindex-url = {url}\n[install]\nindex-url = {url}\n", mode=0o600)
    return {"PIP_CONFIG_FILE": str(path)}


def credentials_of(repository: CodeArtifact, connect: "Callable[[str], Any] | None" = None) -> str:
    """Return the address of a CodeArtifact repository as pip takes it, with a token that the job's role is given.

    Args:
        repository: Which one.
        connect: Returns a client of CodeArtifact in a region; None is boto3's.

    Raises:
        InvalidRequest: The image has no boto3, or the role may not; one sentence.
    """
    client = (connect or _connect)(repository.region)
    owner = {"domain": repository.domain, "domainOwner": repository.account}
    try:
        token = str(client.get_authorization_token(**owner)["authorizationToken"])
        place = {"repository": repository.name, "format": "pypi"}
        endpoint = str(client.get_repository_endpoint(**owner, **place)["repositoryEndpoint"])
    except Exception as error:  # boto3's own kinds are made at run time
        raise InvalidRequest(
            f"the job's role gets no token for the CodeArtifact repository {repository.arn}: "
            f"{type(error).__name__}: {error}; it needs codeartifact:GetAuthorizationToken, "
            "codeartifact:GetRepositoryEndpoint, codeartifact:ReadFromRepository and sts:GetServiceBearerToken, and "
            "its subnets a way to CodeArtifact"
        ) from error
    parts = urlsplit(endpoint.rstrip("/") + "/simple/")
    return urlunsplit(parts._replace(netloc=f"aws:{quote(token, safe='')}@{parts.netloc}"))


def _connect(region: str) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise InvalidRequest(
            "this image has no boto3, by which the job's role would get a token for CodeArtifact; take an image that "
            "has it, or another pip_index"
        ) from error
    # botocore's own minute, five times over, would be paid for on every instance.
    config = Config(connect_timeout=TOKEN_S, read_timeout=TOKEN_S, retries={"total_max_attempts": 1})
    return boto3.client("codeartifact", region_name=region, config=config)
