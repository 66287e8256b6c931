"""What a run waited for most, in one sentence with its number and what to try.

Pure: what flows in are shares of the step and the use of the instances, what flows out is text. The order of the rules
is the order in which it pays to act: a step that waits for data gains nothing from a faster network.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Picture", "RankTimes", "bottleneck"]

WORTH_TELLING = 0.10
"""Below this share of the step nothing is gained by acting on it."""

CHECKPOINT_SHARE = 0.05
"""A checkpoint costs more than this: too often."""

CHECKPOINT_GOAL = 0.02
"""What the advice brings it to."""

IMBALANCE = 1.25
"""A rank that computes so much longer than the median holds the others up."""

FULL_PERCENT = 85.0
"""Of a resource that can give no more."""

LONG_STEPS, LONG_S = 100, 60.0
"""A run that has fewer steps, or is shorter, is a try: what it waited for is told, and nothing to buy or to change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTimes:
    """What one rank computes of a step."""

    rank: int
    """The rank."""
    host: str
    """Its instance."""
    computing_s: float
    """Of one step, without communication."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the time went into, and what to do about it."""

    share: str
    """With its number: ``41 % of the step waits for data``."""
    remedy: str
    """What to try."""
    but: str = ""
    """What else is to be known before one tries it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """What a run looked like from rank 0."""

    steps: int
    """Steps that were measured."""
    step_s: float
    """Mean seconds of one."""
    data: float
    """Share of the time that waits for data, 0 to 1."""
    checkpoint: float
    """Share that saving delays the loop by."""
    communication: float | None
    """Share in which ranks wait for each other and compute nothing; None where no step was looked at."""
    computing: float
    """Share of forward, backward and optimizer, without communication where that is known."""
    other: float
    """Share of the user's own code between the steps."""
    device: str = "cpu"
    """``cpu`` or ``cuda``."""
    precision: str = "fp32"
    """Of the computing."""
    pipeline: int = 1
    """Stages of the pipeline."""
    loader_workers: int | None = None
    """Processes that load data; None where raysm does not know."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """Means of rank 0's instance by the names of ``usage``."""
    ranks: tuple[RankTimes, ...] = ()
    """Of every rank, in one and the same step."""


def bottleneck(picture: Picture) -> str:
    """Return the sentence; without what to try where the run was too short for advice."""
    if picture.steps < 1:
        return "too few steps to say where the time went"
    finding = _find(picture)
    is_long = picture.steps >= LONG_STEPS and picture.steps * picture.step_s >= LONG_S
    return f"{finding.share}{finding.but}: {finding.remedy}" if is_long else finding.share


def _find(picture: Picture) -> Finding:
    slow = _slowest(picture)
    parts = [
        (picture.data, _data),
        # Saving has a remedy that costs nothing, so less of it is worth telling.
        (picture.checkpoint if picture.checkpoint >= CHECKPOINT_SHARE else 0.0, _checkpoint),
        (picture.communication or 0.0, _communication if slow is None else _imbalance),
        (picture.other, _other),
    ]
    # The largest alone: a reader acts on one thing, and the next run names the next.
    share, say = max(parts, key=lambda part: part[0])
    least = CHECKPOINT_SHARE if say is _checkpoint else WORTH_TELLING
    return say(picture) if share >= least else _computing(picture)


def _data(picture: Picture) -> Finding:
    cpu = picture.usage.get("cpu_percent", 0.0)
    # More loader workers would only take turns on full CPUs.
    if cpu >= FULL_PERCENT:
        remedy = f"the CPUs are {cpu:.0f} % busy: prepare the data once and store it ready, or take more CPUs per GPU"
    elif picture.loader_workers:
        remedy = f"more loader workers (loader_workers={2 * picture.loader_workers}), or fewer, larger files"
    else:
        remedy = "more loader workers (loader_workers=2 in training.batches), or data that is ready to use"
    return Finding(f"{_percent(picture.data)} of the step waits for data", remedy)


def _checkpoint(picture: Picture) -> Finding:
    factor = max(2, round(picture.checkpoint / CHECKPOINT_GOAL))
    return Finding(
        f"{_percent(picture.checkpoint)} of the time goes into checkpoints",
        f"save {factor} times more rarely (Checkpoints(every_steps=…))",
    )


def _communication(picture: Picture) -> Finding:
    share = f"{_percent(picture.communication or 0.0)} of the step waits for communication"
    if picture.pipeline > 1:
        return Finding(f"{share} and the pipeline's bubble", "more micro-batches, or the schedule 'interleaved'")
    # What costs nothing comes first, what has to be bought last.
    remedies = ["a larger batch per worker"]
    if picture.device == "cuda" and picture.precision == "fp32":
        remedies.append("precision='bf16'")
    remedies.append("instances with a faster network, or fewer of them")
    bytes_per_s = picture.usage.get("network_sent_bytes_per_s", 0.0)
    rate = f" ({bytes_per_s / 1e6:,.0f} MB/s sent per instance)" if bytes_per_s >= 1e6 else ""
    return Finding(share, ", or ".join(remedies), but=rate)


def _imbalance(picture: Picture) -> Finding:
    slow = _slowest(picture)
    assert slow is not None
    ratio = slow.computing_s / _median([rank.computing_s for rank in picture.ranks]) - 1
    remedy = "split the stages by blocks='…' elsewhere" if picture.pipeline > 1 else "give it the same work and CPUs"
    return Finding(
        f"{_percent(picture.communication or 0.0)} of the step waits for rank {slow.rank} on {slow.host}, which "
        f"computes {_percent(ratio)} longer than the median",
        f"{remedy}, or look at what else runs there",
    )


def _other(picture: Picture) -> Finding:
    return Finding(
        f"{_percent(picture.other)} of the time goes into the loop's own code between the steps",
        "compute metrics and print more rarely",
    )


def _computing(picture: Picture) -> Finding:
    share = f"{_percent(picture.computing)} of the step computes"
    gpu, cpu = picture.usage.get("gpu_percent"), picture.usage.get("cpu_percent", 0.0)
    if picture.device == "cuda":
        # A GPU that computes all the time and is half idle has kernels that are too small for it.
        if gpu is not None and gpu < 100 - FULL_PERCENT * 0.5:
            return Finding(share, "a larger batch, or torch.compile", but=f", and yet the GPU is {gpu:.0f} % busy")
        precision = "precision='bf16', or " if picture.precision == "fp32" else ""
        return Finding(share, f"{precision}more or faster GPUs", but=", and nothing else holds it up")
    # 0 is where nobody looked: without psutil the usage stays unknown.
    if 0 < cpu < 100 - FULL_PERCENT * 0.5:
        remedy = "a larger batch, or more workers per instance"
        return Finding(share, remedy, but=f", and yet the CPUs are {cpu:.0f} % busy")
    return Finding(share, "more or faster instances, or GPUs", but=", and nothing else holds it up")


def _slowest(picture: Picture) -> RankTimes | None:
    """Return the rank that holds the others up; None where they are alike."""
    if len(picture.ranks) < 2:
        return None
    slow = max(picture.ranks, key=lambda rank: rank.computing_s)
    return slow if slow.computing_s > IMBALANCE * _median([rank.computing_s for rank in picture.ranks]) else None


def _median(values: list[float]) -> float:
    # The lower one of two: of two ranks the slower one is measured against the faster one.
    # Never 0: the slowest one is divided by it.
    return max(1e-12, sorted(values)[(len(values) - 1) // 2])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
