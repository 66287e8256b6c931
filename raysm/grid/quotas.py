"""How many instances an account may have, by place: a service flows in, Quotas flow out.

What Service Quotas lists of SageMaker: values that apply to the account, and AWS's defaults for all that was never
changed, of which many are 0. The code of a quota does not follow from its type, so that they are told by their names.
https://docs.aws.amazon.com/general/latest/gr/sagemaker.html
"""

import re
from collections.abc import Collection, Mapping

from raysm.client.account.quotas import listed_quotas
from raysm.client.service import Service
from raysm.grid.place import Place, Quota

__all__ = ["all_quotas", "quota_place", "read_quotas"]

NAME = re.compile(r"(?P<type>ml\.\S+) for (?P<spot>spot )?training job usage")
"""Of a quota of instances: ``ml.g5.xlarge for spot training job usage``."""


def all_quotas(service: Service) -> Mapping[Place, Quota]:
    """Return every quota of instances for training in the service's region.

    Raises:
        ServiceError: They cannot be read.
    """
    quotas: dict[Place, Quota] = {}
    for listed in listed_quotas(service):
        place = quota_place(listed["QuotaName"], service.region)
        if place is not None:
            # The account's own came first.
            quotas.setdefault(place, Quota(limit=int(listed["Value"]), source="api"))
    return quotas


def read_quotas(service: Service, instance_types: Collection[str], markets: Collection[bool]) -> Mapping[Place, Quota]:
    """Return the quotas of some types in the service's region, as far as they are listed.

    Args:
        service: Of one region.
        instance_types: Which.
        markets: Whether those of spare capacity, on demand, or both.

    Raises:
        ServiceError: They cannot be read.
    """
    places = {
        Place(region=service.region, instance_type=name, spot=spot) for name in instance_types for spot in markets
    }
    quotas: dict[Place, Quota] = {}
    for listed in listed_quotas(service):
        place = quota_place(listed["QuotaName"], service.region)
        if place in places and place not in quotas:
            quotas[place] = Quota(limit=int(listed["Value"]), source="api")
        # There are thousands, a hundred to a page, of which a grid needs a few.
        if quotas.keys() == places:
            break
    return quotas


def quota_place(name: str, region: str) -> Place | None:
    """Return the place that a quota of this name limits; None where it is of something else."""
    match = NAME.fullmatch(name)
    return None if match is None else Place(region=region, instance_type=match["type"], spot=bool(match["spot"]))
