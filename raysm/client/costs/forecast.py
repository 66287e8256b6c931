"""What a job will cost, as a range: the best and the worst of each phase that is billed.

AWS bills Downloading, Training and Uploading, each second of each instance
(https://docs.aws.amazon.com/sagemaker/latest/dg/model-train-storage.html, notes 1 to 3). None of the rates below was
measured on AWS: they are wide ranges that people report. An unknown phase makes the worst case unknown, not 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from raysm.client.costs.bill import dollars
from raysm.client.costs.prices import Price, price_of, volume_usd_per_hour
from raysm.request import Cluster, JobRequest


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds, from the best to the worst case."""

    least_s: float
    """At best."""
    most_s: float | None
    """At worst; None if unknown."""

    def __str__(self) -> str:
        if self.most_s is None:
            return f"at least {_duration(self.least_s)}"
        # What would be shown alike is shown once.
        if round(self.least_s) == round(self.most_s):
            return _duration(self.least_s)
        return f"{_duration(self.least_s)} to {_duration(self.most_s)}"


IMAGE = Span(0.0, 300.0)
"""To pull the image: some GB, from a registry in the same region. At best the instances have it, in a warm pool."""
PACKAGES = Span(60.0, 300.0)
"""For pip to install Ray and what it needs where the image lacks it, as AWS's own images do."""
FORMING = Span(10.0, 60.0)
"""For the instances to find each other and to start Ray."""
STORAGE_BYTES_PER_S = (50e6, 500e6)
"""Between S3 and one instance's volume, at worst and at best."""
CORES = (0.7, 1.5)
"""How long the work may take on the instances, by how long it takes on as many of this machine's cores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What is billed of a job."""

    phases: Mapping[str, Span]
    """In their order, of each instance."""
    count: int
    """Instances."""
    price: Price | None
    """Of one; None where it is not known."""
    volume_usd_per_hour: float | None
    """Of the volume of one; None where it is not known."""
    keep_alive_s: int = 0
    """Seconds for which the instances stay warm afterwards, unless another job takes them."""

    @property
    def billed(self) -> Span:
        """Of each instance, without its time in a warm pool."""
        worst = [span.most_s for span in self.phases.values()]
        bounded = [seconds for seconds in worst if seconds is not None]
        least_s = sum(span.least_s for span in self.phases.values())
        return Span(least_s, sum(bounded) if len(bounded) == len(worst) else None)

    @property
    def usd(self) -> tuple[float, float | None] | None:
        """At best and at worst (None if unknown); None if the price is unknown."""
        if self.price is None:
            return None
        billed = self.billed
        return self._usd(billed.least_s), None if billed.most_s is None else self._usd(billed.most_s)

    @property
    def warm_usd(self) -> float | None:
        """What the warm pool costs at most; None where the price is not known."""
        return None if self.price is None else self._usd(self.keep_alive_s)

    def _usd(self, seconds: float) -> float:
        assert self.price is not None
        # As in a bill, volumes without a price do not hide the instances': the line says that they are missing.
        return self.count * (self.price.usd_per_hour + (self.volume_usd_per_hour or 0.0)) * seconds / 3600

    def lines(self, instance_type: str) -> list[tuple[str, str]]:
        """Return it for people: a label and a text for each line."""
        phases = ", ".join(f"{name} {span}" for name, span in self.phases.items())
        rows = [("billed", f"{self.billed} of each instance ({phases}); assumed but for the computing, not measured")]
        if self.usd is None:
            money = f"unknown: no price of {instance_type} is at hand; give --price-per-hour"
        else:
            least, most = self.usd
            span = f"at least {dollars(least)}" if most is None else f"{dollars(least)} to {dollars(most)}"
            volumes = "" if self.volume_usd_per_hour is not None else ", volumes not counted"
            money = f"{span}: {self.count} x {self.price}{volumes}"
        rows.append(("money", money))
        if self.keep_alive_s:
            cost = "an unknown price" if self.warm_usd is None else dollars(self.warm_usd)
            rows.append(
                ("warm", f"up to {cost} more, while the instances wait {self.keep_alive_s:,} s for the next job")
            )
        return rows


def forecast(
    cluster: Cluster,
    *,
    region: str,
    price: Price | None,
    computing_s: float,
    input_bytes: int | None,
    output_bytes: int | None,
    lacks_ray: bool,
) -> Forecast:
    """Return what is billed of a job that computes for ``computing_s`` on as many of this machine's cores.

    Args:
        cluster: Instances of one type.
        region: Where they are.
        price: Of one instance; None is not known.
        computing_s: From the formed cluster to the end.
        input_bytes: What each instance downloads; None is not known.
        output_bytes: What the head uploads; None is not known.
        lacks_ray: Whether the image is known to lack Ray.
    """
    return Forecast(
        phases={
            "image": IMAGE,
            # An image that is not known to lack Ray is not known to have it either.
            "packages": PACKAGES if lacks_ray else Span(0.0, PACKAGES.most_s),
            "download": _moved(input_bytes),
            "forming": FORMING,
            "computing": Span(CORES[0] * computing_s, CORES[1] * computing_s),
            "upload": _moved(output_bytes),
        },
        count=cluster.count,
        price=price,
        volume_usd_per_hour=volume_usd_per_hour(cluster.instance_type, cluster.volume_gb, region),
        keep_alive_s=cluster.keep_alive_s,
    )


def most_expensive(request: JobRequest, region: str, price: Callable[[str, str], Price | None] = price_of) -> str:
    """Return, for people, what a job costs at most of which nothing is known but how long it may run.

    Args:
        request: The job.
        region: Where it runs.
        price: Returns the price of a type in a region.
    """
    cluster, limits = request.cluster, request.limits
    # On demand for spot capacity too: that has no price of its own, only fewer billed seconds.
    prices = {name: price(name, region) for name in cluster.types}
    volumes = {name: volume_usd_per_hour(name, cluster.volume_gb, region) for name in cluster.types}
    unknown = [name for name, one in prices.items() if one is None]
    unknown += [f"the volume of {name}" for name, one in volumes.items() if one is None and name not in unknown]
    # What is left of a sum without one of its prices would not be the most.
    if unknown:
        return f"unknown: no price of {' or '.join(unknown)} in {region} is at hand"

    def usd_per_hour(choice: Mapping[str, int]) -> float:
        return sum(count * (_usd_per_hour(prices[name]) + (volumes[name] or 0.0)) for name, count in choice.items())

    # The service chooses one of the types: at most the most expensive.
    dearest = max(cluster.choices, key=usd_per_hour)
    # Each follow-up may run as long again.
    # The warm pool counts once, since each takes it over from the one before.
    seconds = limits.max_runtime_s * (1 + limits.max_restarts) + cluster.keep_alive_s
    included = " with the volumes" if any(volumes[name] for name in dearest) else ""
    warm = ", its warm pool included" if cluster.keep_alive_s else ""
    shown = " + ".join(f"{count} x {name} at {prices[name]}" for name, count in dearest.items())
    amount = f"at most {dollars(usd_per_hour(dearest) * seconds / 3600)}{included}"
    return f"{amount}: {shown}, for the {_duration(seconds)} that it may take{warm}"


def _usd_per_hour(price: Price | None) -> float:
    assert price is not None
    return price.usd_per_hour


def _moved(size_bytes: int | None) -> Span:
    if size_bytes is None:
        return Span(0.0, None)
    worst, best = STORAGE_BYTES_PER_S
    return Span(size_bytes / best, size_bytes / worst)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
