"""The connection to AWS, from a target and the AWS configuration."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from raysm.client.account.images import with_image
from raysm.client.targets.connection import SET_REGION, Bucket, Clients, Connection, Polling, Resolved, client_options
from raysm.contract.home import home
from raysm.errors import InvalidRequest, ServiceError
from raysm.request import AWS, JobRequest

__all__ = ["AWS_HOSTS", "AWSConnection"]

AWS_HOSTS = (
    ".amazonaws.com",
    ".amazonaws.com.cn",
    ".api.amazonwebservices.com.cn",
    ".amazonaws.eu",
    ".api.aws",
    ".c2s.ic.gov",
    ".sc2s.sgov.gov",
)
"""How the names of AWS's own endpoints end, in all its partitions; those of VPC endpoints too."""

_log = logging.getLogger("raysm")


class AWSConnection(Connection):
    """Amazon SageMaker in one account and region."""

    # CloudWatch hands lines on some seconds after they were written: who ends with the job would miss the last ones.
    # GetLogEvents is limited for the whole account, to 25 calls a second in most regions: this leaves room for ten who
    # follow a job of any size each. docs.aws.amazon.com/AmazonCloudWatch/latest/logs/cloudwatch_limits_cwl.html
    polling = Polling(first_s=2.0, most_s=20.0, late_s=15.0, stream_s=0.5)

    def __init__(self, target: AWS) -> None:
        """Connect to nothing yet."""
        self._target = target
        self._session: Any = None
        self._is_warned = False

    @property
    def profile(self) -> str:
        """The target's."""
        return self._target.profile or ""

    @property
    def home(self) -> Path:
        """Where results are downloaded to."""
        return home(None)

    def region(self, clients: Clients) -> str:
        """Return the region, from the target or from the AWS configuration."""
        # A client knows what variables, profile and configuration come to.
        region = self._target.region or clients("sagemaker").meta.region_name
        if not region:
            raise ServiceError("no AWS region is set", remedy=SET_REGION)
        return str(region)

    def bucket(self, region: Callable[[], str], account: Callable[[], str]) -> Bucket:
        """Return the target's bucket, else the one that the SageMaker SDK uses too."""
        if self._target.bucket is not None:
            return Bucket(name=self._target.bucket, is_named=True)
        return Bucket(name=f"sagemaker-{region()}-{account()}", owner=account())

    def data_root(self, bucket_root: str) -> str:
        """Return the same prefix: all lies in S3."""
        return bucket_root

    def resolve(self, request: JobRequest, region: Callable[[], str]) -> Resolved:
        """Return the target with an image: AWS's own for the region and the instances where none is named.

        Raises:
            InvalidRequest: There is none, or the image's Python cannot read what the job pickles.
        """
        target, image = with_image(self._target, request, region)
        return Resolved(target=target, image=image)

    def make_client(self, name: str) -> Any:
        """Return a client with the credentials of the AWS configuration."""
        import boto3

        # One session for all clients: each further one would read configuration and credentials anew.
        if self._session is None:
            self._session = boto3.Session(profile_name=self._target.profile, region_name=self._target.region)
        try:
            client = self._session.client(
                name,
                # The prices of all regions are served by a few: docs.aws.amazon.com/general/latest/gr/billing.html
                region_name="us-east-1" if name == "pricing" else None,
                config=client_options(repeats=self.repeats or name != "sagemaker"),
            )
        except ValueError as error:  # all that botocore has for an endpoint that is no URL
            raise InvalidRequest(
                f"no client of {name} can be made: {error}",
                remedy="unset AWS_ENDPOINT_URL, or fix endpoint_url of the AWS configuration",
            ) from error
        self._warn_of_others(str(client.meta.endpoint_url))
        return client

    def _warn_of_others(self, url: str) -> None:
        # Of an AWS_ENDPOINT_URL left in the shell nothing would be seen: the embedded server answers as AWS does. Not
        # refused, because others reach AWS by endpoints of their own, and tests reach no AWS at all.
        host = urlsplit(url).hostname or ""
        if self._is_warned or host.endswith(AWS_HOSTS):
            return
        self._is_warned = True
        _log.warning(
            "on AWS goes to %s, which is not an address of AWS: AWS_ENDPOINT_URL, or endpoint_url in the AWS "
            "configuration, is set; unset it to reach AWS itself",
            url,
        )
