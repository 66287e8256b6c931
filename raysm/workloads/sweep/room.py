"""How many trials run at once, so that each has all that it needs and none waits for another for ever. Pure.

What flows in is what the instances offer and what one trial takes, what flows out is a number, or the sentence that
says why not even one fits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raysm.errors import InvalidRequest
from raysm.workloads.presence import tasks_at_once

__all__ = ["TrialSize", "trials_at_once"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialSize:
    """What one trial takes."""

    workers: int
    """Its processes."""
    cpus: float
    """Of each."""
    gpus: float
    """Of each."""

    @property
    def bundles(self) -> list[dict[str, float]]:
        """The same as Ray's placement groups have it: one bundle a worker."""
        # No key for none, as Ray itself writes bundles without a GPU.
        bundle = {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})
        return [dict(bundle) for _ in range(self.workers)]


def trials_at_once(
    nodes: Sequence[Mapping[str, float]], size: TrialSize, *, most: int | None = None
) -> tuple[int, str]:
    """Return how many trials run at once, and what there is to say of it.

    All workers of a trial are placed together or not at all: what is counted here is only so that no trial is begun,
    and told as running, for which there is no room.

    Args:
        nodes: What each instance offers, by Ray's names: ``{"CPU": 4, "GPU": 1}``.
        size: Of one trial.
        most: At most so many; None is as many as fit.

    Returns:
        The number, at least 1, and a sentence where it is less than ``most``, else an empty text.

    Raises:
        InvalidRequest: Not even one fits.
    """
    workers = tasks_at_once(nodes, size.cpus, size.gpus)
    # An estimate where workers are larger than half an instance; the placement groups decide.
    fit = workers // size.workers
    if not fit:
        offers = ", ".join(f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes)
        raise InvalidRequest(
            f"not even one trial fits: it takes {size.workers} worker{'s' if size.workers > 1 else ''} of "
            f"{size.cpus:g} CPUs and {size.gpus:g} GPUs, and the instances offer {offers or 'nothing'}; take fewer "
            "workers, cpus or gpus, or larger or more instances"
        )
    if most is None or most <= fit:
        return (fit if most is None else most), ""
    return fit, f"{fit} trials run at once, not {most}: the instances have no room for more"
