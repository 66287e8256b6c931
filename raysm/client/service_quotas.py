"""What Service Quotas lists of SageMaker: a service flows in, quotas flow out as the API says them.

Values that apply to the account come first. What was never changed or looked at is missing among them, many right
instance types too; so AWS's defaults follow, and must not replace what came before.
https://docs.aws.amazon.com/general/latest/gr/sagemaker.html
"""

from collections.abc import Iterator
from typing import Any

from raysm.client.service import Service

__all__ = ["listed_quotas"]

OPERATIONS = ("list_service_quotas", "list_aws_default_service_quotas")


def listed_quotas(service: Service) -> Iterator[dict[str, Any]]:
    """Yield the quotas of the service's region, page by page: there are thousands, and who has his takes no more.

    Raises:
        ServiceError: They cannot be read.
    """
    for operation in OPERATIONS:
        more: dict[str, str] = {}
        while True:
            page = service.call("service-quotas", operation, ServiceCode="sagemaker", MaxResults=100, **more)
            yield from page["Quotas"]
            if not page.get("NextToken"):
                break
            more = {"NextToken": page["NextToken"]}
