"""What it costs to read data in another region than theirs: two regions and bytes flow in, dollars flow out.

Who sends pays, by where the data lie: https://aws.amazon.com/ec2/pricing/on-demand/#Data_Transfer, as of 2026-11.
Regions outside of North America and Europe cost several times as much and differ from each other: what is not known of
them is unknown, never 0.
"""

__all__ = ["AS_OF", "transfer_usd", "usd_per_gb"]

AS_OF = "2026-11"
"""When the rates below were so."""

GB = 1e9
"""AWS bills by 10^9 bytes here, as it does for what goes to the internet."""

NEAR = frozenset({"us-east-1", "us-east-2"})
"""Virginia and Ohio send each other for half of it."""

RATE = 0.02
NEAR_RATE = 0.01
PRICED = ("us-", "ca-", "eu-")
"""How the names of regions begin whose rate is known; GovCloud's, which begin so too, are another partition."""


def usd_per_gb(source: str, target: str) -> float | None:
    """Return what a GB costs from one region to another; 0 within one, None where it is not known."""
    if source == target:
        return 0.0
    if {source, target} == NEAR:
        return NEAR_RATE
    return RATE if source.startswith(PRICED) and "-gov-" not in source else None


def transfer_usd(source: str | None, target: str, size_bytes: int | None) -> float | None:
    """Return what data cost on their way; None where size or rate is not known.

    Args:
        source: Where they lie; None is anywhere, so that nothing is moved.
        target: Where they are read.
        size_bytes: Of them all; None is unknown.
    """
    if source is None or source == target:
        return 0.0
    rate = usd_per_gb(source, target)
    return None if rate is None or size_bytes is None else rate * size_bytes / GB
