"""What a job and its follow-ups have cost, and what a job costs at most.

What is unknown stays unknown, and never becomes 0.

AWS bills Downloading, Training and Uploading, each second of each instance
(https://docs.aws.amazon.com/sagemaker/latest/dg/model-train-storage.html, notes 1 to 3): billable
seconds times instances. Spot capacity has fewer billable seconds
(https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingJob.html).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from raysm.core.client.costs.cap import STOP_GRACE_S, Cap
from raysm.core.client.costs.prices import Price, price_of, price_of_user, volume_usd_per_hour
from raysm.core.client.job.description import Description
from raysm.core.request import JobRequest
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.core.request.durations import brief_duration


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    instance_type: str
    count: int
    billed_s: float | None
    """Seconds that each instance is billed for; None if the service does not say yet."""
    is_exact: bool
    """False for a Processing job, whose seconds are counted from its start to its end."""
    price: Price | None
    volume_usd_per_hour: float | None

    @property
    def usd(self) -> float | None:
        if self.billed_s is None or self.price is None:
            return None
        return self.count * self.usd_per_second * self.billed_s

    @property
    def usd_per_second(self) -> float:
        return _usd_per_hour(self.price, self.volume_usd_per_hour) / 3600

    def __str__(self) -> str:
        price = "at an unknown price" if self.price is None else f"at {self.price}"
        seconds = "an unknown time" if self.billed_s is None else f"{self.billed_s:,.0f} s"
        about = "" if self.is_exact or self.billed_s is None else "about "
        return f"{self.count} x {self.instance_type}, each billed for {about}{seconds} {price}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    shares: tuple[Share, ...]
    spot_saving: float | None
    """Share of the training time that is not billed on spot capacity, 0 to 1; None for other
    jobs."""
    warm_s: float
    """Seconds that the instances are billed for after the job, unless another job takes them: those
    that the service has counted, else those that were requested."""
    is_warm_time_over: bool
    warm_usd: float | None

    @property
    def usd(self) -> float | None:
        return _sum(share.usd for share in self.shares)

    @property
    def instance_s(self) -> float | None:
        return _sum(
            None if share.billed_s is None else share.count * share.billed_s
            for share in self.shares
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "usd": None if self.usd is None else round(self.usd, 6),
            "instance_s": self.instance_s,
            "spot_saving": None if self.spot_saving is None else round(self.spot_saving, 4),
            "warm_s": self.warm_s,
            "warm_usd": None if self.warm_usd is None else round(self.warm_usd, 6),
            "shares": [
                {
                    "instance_type": share.instance_type,
                    "count": share.count,
                    "billed_s": share.billed_s,
                    "usd_per_hour": None if share.price is None else share.price.usd_per_hour,
                    "price": None if share.price is None else share.price.origin,
                    "volume_usd_per_hour": share.volume_usd_per_hour,
                }
                for share in self.shares
            ],
        }


def bill_of(
    jobs: Iterable[Description], region: str, price: Callable[[str, str], Price | None] = price_of
) -> Bill | None:
    described = list(jobs)
    if not described or not described[-1].status.is_terminal:
        return None
    by_job = [
        tuple(_share(job, name, count, region, price) for name, count in job.instances)
        for job in described
    ]
    # Only those of the last: each follow-up takes the instances over.
    last = described[-1].answer
    resources = described[-1].answer.get("ResourceConfig", {})
    counted = last.get("WarmPoolStatus", {}).get("ResourceRetainedBillableTimeInSeconds")
    warm_s = float(resources.get("KeepAlivePeriodInSeconds", 0) if counted is None else counted)
    return Bill(
        shares=tuple(share for shares in by_job for share in shares),
        spot_saving=_saving(described),
        warm_s=warm_s,
        is_warm_time_over=counted is not None,
        warm_usd=_sum(
            None if one.price is None else one.count * one.usd_per_second * warm_s
            for one in by_job[-1]
        ),
    )


def usd_so_far(
    job: Description,
    region: str,
    now_s: float,
    price: Callable[[str, str], Price | None] = price_of,
) -> float | None:
    if job.started is None:
        return 0.0
    spent_s = max(0.0, now_s - job.started.timestamp())
    shares = (_share(job, name, count, region, price) for name, count in job.instances)
    return _sum(
        None if one.price is None else one.count * one.usd_per_second * spent_s for one in shares
    )


def lines(bill: Bill) -> list[tuple[str, str]]:
    """Return the bill as text: a label and a text for each line."""
    total = "unknown" if bill.usd is None else dollars(bill.usd)
    volumes = (
        ""
        if all(share.volume_usd_per_hour is not None for share in bill.shares)
        else "; volumes not counted"
    )
    rows = [("money", f"{total}: {' + '.join(map(str, bill.shares))}{volumes}")]
    if bill.spot_saving is not None:
        rows.append(
            ("spot", f"{bill.spot_saving:.0%} saved: so much less is billed than the training took")
        )
    if bill.warm_s:
        cost = "an unknown price" if bill.warm_usd is None else dollars(bill.warm_usd)
        until = "were billed" if bill.is_warm_time_over else "are billed"
        upto = "" if bill.is_warm_time_over else "up to "
        rows.append(
            (
                "warm",
                (
                    f"the instances {until} for {upto}{bill.warm_s:,.0f} s more, "
                    f"{cost}, while they wait for a job"
                ),
            )
        )
    return rows


def dollars(usd: float) -> str:
    if usd >= 0.1 or not usd:
        return f"{usd:,.2f} USD"
    if usd >= 0.001:
        return f"{usd:.2g} USD"
    return f"{usd:.6f} USD"


def _capped(cap: Cap) -> str:
    rate = f"{dollars(cap.usd_per_hour)} an hour"
    lasts = brief_duration(cap.max_runtime_s)
    most = f"at most {dollars(cap.max_cost)}, its max_cost"
    if cap.is_reason:
        return (
            f"{most}: the service stops it after {lasts} at {rate}, "
            f"with {STOP_GRACE_S} s to save its work"
        )
    paid = brief_duration(cap.paid_s)
    return f"{most}: it and its follow-ups may take {paid} at {rate}, each up to {lasts}"


def _usd_per_hour(price: Price | None, volume_usd_per_hour: float | None) -> float:
    assert price is not None
    # An unknown price of the volume does not hide the instance's: the text says that volumes are
    # not counted.
    return price.usd_per_hour + (volume_usd_per_hour or 0.0)


def _sum(parts: Iterable[float | None]) -> float | None:
    every = list(parts)
    amounts = [part for part in every if part is not None]
    return sum(amounts) if amounts and len(amounts) == len(every) else None


def _share(
    job: Description,
    instance_type: str,
    count: int,
    region: str,
    price: Callable[[str, str], Price | None],
) -> Share:
    billed_s: float | None = job.billable_s
    # Describe has no billable time for Processing jobs, which have no secondary status.
    if (
        billed_s is None
        and job.started is not None
        and job.ended is not None
        and not job.api.has_secondary_status
    ):
        billed_s = max(0.0, (job.ended - job.started).total_seconds())
    elif billed_s is None and job.started is None:
        # Waiting for capacity is not billed.
        billed_s = 0.0
    return Share(
        instance_type=instance_type,
        count=count,
        billed_s=billed_s,
        is_exact=job.billable_s is not None or job.started is None,
        price=price(instance_type, region),
        volume_usd_per_hour=volume_usd_per_hour(instance_type, _volume_gb(job), region),
    )


def _volume_gb(job: Description) -> int:
    cluster: Mapping[str, Any] = job.answer
    for key in job.api.cluster_keys:
        cluster = cluster.get(key, {})
    return int(cluster.get("VolumeSizeInGB", 0))


def _saving(jobs: list[Description]) -> float | None:
    # A job with only one of the two numbers would distort the saving.
    spot = [
        job
        for job in jobs
        if job.answer.get("EnableManagedSpotTraining") and job.training_s and job.billable_s
    ]
    training_s = sum(job.training_s or 0 for job in spot)
    return 1 - sum(job.billable_s or 0 for job in spot) / training_s if training_s else None


def most_expensive(
    request: JobRequest,
    region: str,
    price: Callable[[str, str], Price | None] = price_of,
    *,
    cap: Cap | None = None,
) -> str:
    """Return what a job costs at most, in words; ``cap`` is what it may cost."""
    cluster = request.cluster
    limits = request.limits
    if limits.price_per_hour is not None:
        given = price_of_user(limits.price_per_hour)
        prices: dict[str, Price | None] = dict.fromkeys(cluster.types, given)
    else:
        prices = {name: price(name, region) for name in cluster.types}
    volumes = {
        # Instances of this machine have no volumes.
        name: 0.0 if name == LOCAL_TYPE else volume_usd_per_hour(name, cluster.volume_gb, region)
        for name in cluster.types
    }
    unknown = [name for name, one in prices.items() if one is None]
    # Who gives a price gives that of the instance with its volume.
    unknown += [
        f"the volume of {name}"
        for name, one in volumes.items()
        if one is None and name not in unknown and limits.price_per_hour is None
    ]
    # Each follow-up may run as long again, and takes over the warm pool, which counts once.
    seconds = limits.max_runtime_s * (1 + limits.max_restarts) + cluster.keep_alive_s
    hours = f"{cluster.size * seconds / 3600:,.1f} instance-hours"
    spot = "; spot capacity costs less" if limits.spot else ""
    own = request.workload.own_costs
    if cap is not None and cap.usd_per_hour * seconds / 3600 > cap.max_cost:
        return f"{_capped(cap)}{'' if own is None else f'; {own.end}'}{spot}"
    if own is not None:
        # Known even if the table has no price, because the user may have given it.
        usd = own.usd_per_hour * seconds / 3600
        rate = f"{own.usd_per_hour:g} USD an hour"
        amount = (
            f"{dollars(usd)}: {rate} for the {brief_duration(seconds)} that it may take, {hours}"
        )
        if own.budget_usd is not None and own.budget_usd < usd:
            lasts = brief_duration(own.budget_usd / own.usd_per_hour * 3600)
            amount = (
                f"{dollars(own.budget_usd)}, its budget, "
                f"which lasts {lasts} from the head's start at {rate}"
            )
        return f"at most {amount}; {own.end}{spot}"
    if unknown:
        fetch = f"raysm prices --refresh --regions {region} --on aws fetches it"
        return (
            f"unknown, up to {hours}: "
            f"no price of {' or '.join(unknown)} in {region} is at hand; {fetch}"
        )

    def usd_per_hour(choice: Mapping[str, int]) -> float:
        return sum(
            count * _usd_per_hour(prices[name], volumes[name]) for name, count in choice.items()
        )

    # The service chooses one of the types.
    dearest = max(cluster.choices, key=usd_per_hour)
    included = " with the volumes" if any(volumes[name] for name in dearest) else ""
    warm = ", its warm pool included" if cluster.keep_alive_s else ""
    shown = " + ".join(f"{count} x {name} at {prices[name]}" for name, count in dearest.items())
    amount = f"at most {dollars(usd_per_hour(dearest) * seconds / 3600)}{included}"
    return (
        f"{amount}: {shown}, for the {brief_duration(seconds)} that it may take{warm}, "
        f"{hours}{spot}"
    )
