"""The connection to AWS, from a target and the AWS configuration."""

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from raysm.core.client.images import with_image
from raysm.core.client.targets.connection import (
    SET_REGION,
    Bucket,
    Clients,
    Connection,
    Polling,
    client_options,
    send_through,
)
from raysm.core.protocol import own_socket
from raysm.core.protocol.home import ServerRecord, home
from raysm.core.request import AWS, JobRequest, Target
from raysm.errors import InvalidRequest, ServiceError

AWS_HOSTS = (
    ".amazonaws.com",
    ".amazonaws.com.cn",
    ".api.amazonwebservices.com.cn",
    ".amazonaws.eu",
    ".api.aws",
    ".c2s.ic.gov",
    ".sc2s.sgov.gov",
)
"""Domains of AWS's own endpoints in all partitions, and of VPC endpoints."""

_log = logging.getLogger("raysm")


class AWSConnection(Connection):
    # CloudWatch delivers lines some seconds late. GetLogEvents is limited to 25 calls a second in
    # most regions, for the whole account: stream_s leaves room for ten followers of jobs of any
    # size. docs.aws.amazon.com/AmazonCloudWatch/latest/logs/cloudwatch_limits_cwl.html
    polling = Polling(first_s=2.0, most_s=20.0, late_s=15.0, stream_s=0.5)

    def __init__(self, target: AWS) -> None:
        self.profile = target.profile or ""
        self._target = target
        self._session: Any = None
        self._is_warned = False

    @property
    def home(self) -> Path:
        return home(None)

    def region(self, clients: Clients) -> str:
        region = self._target.region or clients("sagemaker").meta.region_name
        if not region:
            raise ServiceError("no AWS region is set", remedy=SET_REGION)
        return str(region)

    def bucket(self, region: Callable[[], str], account: Callable[[], str]) -> Bucket:
        if self._target.bucket is not None:
            return Bucket(name=self._target.bucket, is_named=True)
        region_name = region()
        try:
            owner = account()
        except ServiceError as error:
            # Credentials that are missing or have expired; other errors have a code, or are
            # transient.
            if not error.code and not error.is_transient and error.remedy:
                remedy = (
                    f"{error.remedy}; "
                    "a dry run needs none with --bucket … (in Python: AWS(bucket=…))"
                )
                raise type(error)(error.problem, remedy=remedy) from error
            raise
        return Bucket(name=f"sagemaker-{region_name}-{owner}", owner=owner)

    def data_root(self, bucket_root: str) -> str:
        return bucket_root

    def resolve(self, request: JobRequest, region: Callable[[], str]) -> tuple[Target, str]:
        """Return the target with an image.

        If the user named none, it is AWS's own for the region and the instances.
        """
        return with_image(self._target, request, region)

    def make_client(self, name: str) -> Any:
        import boto3

        # One session for all clients: each further one reads configuration and credentials again.
        if self._session is None:
            self._session = boto3.Session(
                profile_name=self._target.profile, region_name=self._target.region
            )
        try:
            client = self._session.client(
                name,
                # Prices of all regions are served there:
                # docs.aws.amazon.com/general/latest/gr/billing.html
                region_name="us-east-1" if name == "pricing" else None,
                config=client_options(repeats=self.repeats or name != "sagemaker"),
            )
        except ValueError as error:  # botocore's error for an endpoint that is not a URL
            raise InvalidRequest(
                f"no client of {name} can be made: {error}",
                remedy="unset AWS_ENDPOINT_URL, or fix endpoint_url of the AWS configuration",
            ) from error
        url = str(client.meta.endpoint_url)
        self._check_listener_of(client, url)
        # A forgotten AWS_ENDPOINT_URL would go unnoticed, since the embedded server answers like
        # AWS. It is only a warning because some users reach AWS through endpoints of their own.
        if not self._is_warned and not (urlsplit(url).hostname or "").endswith(AWS_HOSTS):
            self._is_warned = True
            _log.warning(
                "on AWS goes to %s, which is not an address of AWS: AWS_ENDPOINT_URL, "
                "or endpoint_url in the AWS configuration, is set; unset it to reach AWS itself",
                url,
            )
        return client

    def _check_listener_of(self, client: Any, url: str) -> None:
        """Let a client with a local endpoint connect only to a process of this user or root.

        Such endpoints are the embedded SageMaker's, in the programs of its AWS Batch, and other
        emulations of AWS.
        """
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme != "http" or not (host in ("localhost", "::1") or host.startswith("127.")):
            return
        record = ServerRecord.read(self.home)
        if record is not None and record.socket and record.url == url.rstrip("/"):
            send_through(client, functools.partial(own_socket.connect, record.socket))
            return
        from raysm.core.protocol.connections import connect_to_own

        send_through(
            client, functools.partial(connect_to_own, host, parts.port or 80, or_root=True)
        )
