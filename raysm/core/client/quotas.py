"""The quotas of SageMaker that Service Quotas lists."""

from collections.abc import Iterator
from typing import Any

from raysm.core.client.service import Service


def listed_quotas(service: Service) -> Iterator[dict[str, Any]]:
    """Yield the quotas of the service's region, those of the account before AWS's defaults.

    Service Quotas does not list quotas of the account that were never changed, so that the defaults
    are needed; they must not replace the account's
    (https://docs.aws.amazon.com/general/latest/gr/sagemaker.html). There are thousands:
    a caller that has found its own stops reading.
    """
    for operation in ("list_service_quotas", "list_aws_default_service_quotas"):
        for page in service.pages(
            "service-quotas", operation, ServiceCode="sagemaker", MaxResults=100
        ):
            yield from page["Quotas"]
