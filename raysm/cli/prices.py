"""What an hour of an instance costs, for estimates: a small table, and where it is from."""

from dataclasses import dataclass

__all__ = ["PRICES", "SOURCE", "Offer"]

SOURCE = "on-demand in us-east-1 as public tools quoted it in 2024 and 2025; --price-per-hour says better"
"""Where the prices are from."""


@dataclass(frozen=True, slots=True)
class Offer:
    """An instance type."""

    vcpus: int
    """Cores that Ray is offered."""
    usd_per_hour: float
    """Of one instance."""


PRICES = {
    "ml.m5.large": Offer(2, 0.115),
    "ml.m5.xlarge": Offer(4, 0.23),
    "ml.m5.2xlarge": Offer(8, 0.461),
    "ml.m5.4xlarge": Offer(16, 0.922),
    "ml.m5.12xlarge": Offer(48, 2.765),
    "ml.m5.24xlarge": Offer(96, 5.53),
    "ml.c5.xlarge": Offer(4, 0.204),
    "ml.c5.2xlarge": Offer(8, 0.408),
    "ml.c5.4xlarge": Offer(16, 0.816),
    "ml.c5.9xlarge": Offer(36, 1.836),
    "ml.c5.18xlarge": Offer(72, 3.672),
    "ml.g4dn.xlarge": Offer(4, 0.736),
    "ml.g5.xlarge": Offer(4, 1.408),
}
"""By type."""
