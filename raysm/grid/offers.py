"""All places that a grid may use, with their prices: regions, types and markets flow in, Offers flow out."""

from collections.abc import Sequence

from raysm.client.costs.prices import PriceTable
from raysm.grid.place import Offer, Place

__all__ = ["offers_of"]


def offers_of(
    regions: Sequence[str],
    instance_types: Sequence[str],
    table: PriceTable,
    *,
    count: int = 1,
    markets: Sequence[bool] = (False,),
) -> list[Offer]:
    """Return an offer for each region, type and market, in the order of the user's preference.

    Args:
        regions: The best first.
        instance_types: The best first; a type comes before a region, as one that fits less well costs every row.
        table: Prices; what it does not know has none.
        count: Instances of a job, where the row does not say.
        markets: Whether spare capacity is used: False, True, or both.
    """
    offers = []
    for instance_type in dict.fromkeys(instance_types):
        for region in dict.fromkeys(regions):
            price = table.price(instance_type, region)
            for spot in markets:
                place = Place(region=region, instance_type=instance_type, spot=spot)
                offers.append(
                    Offer(
                        place=place,
                        count=count,
                        usd_per_hour=None if price is None else price.usd_per_hour,
                        price_version="" if price is None else price.version,
                    )
                )
    return offers
