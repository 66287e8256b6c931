"""Service Quotas in memory: quotas by their names, a quota a page, and how many pages were read."""

from raysm.client.service import Service
from raysm.request import AWS


class QuotaPages:
    """Service Quotas of an account and of AWS; every call raises ``error`` if there is one."""

    def __init__(self, own, defaults, error=None):
        self.lists = {"own": own, "defaults": defaults}
        self.error = error
        self.pages = 0

    @property
    def service(self):
        return Service(AWS(role="arn:aws:iam::1:role/r", region="us-east-1"), clients=lambda name: self)

    def _page(self, which, request):
        if self.error is not None:
            raise self.error
        self.pages += 1
        quotas, place = self.lists[which], int(request.get("NextToken", 0))
        more = {"NextToken": str(place + 1)} if place + 1 < len(quotas) else {}
        return {"Quotas": [{"QuotaName": name, "Value": value} for name, value in quotas[place : place + 1]], **more}

    def list_service_quotas(self, **request):
        return self._page("own", request)

    def list_aws_default_service_quotas(self, **request):
        return self._page("defaults", request)
