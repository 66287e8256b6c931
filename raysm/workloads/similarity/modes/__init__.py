"""Modes: the k most similar rows of each row, the pairs above a threshold, or all scores.

Each mode is one class, which says all that others have to know of it; to add one is to write its file and a line here.
"""

from raysm.request.similarity import Similarity
from raysm.workloads.similarity.modes.full import Full
from raysm.workloads.similarity.modes.mode import Mode
from raysm.workloads.similarity.modes.threshold import Threshold
from raysm.workloads.similarity.modes.topk import TopK

MODES: list[type[Mode]] = [TopK, Threshold, Full]
"""A request is given to the first that says that it is asked for."""


def mode_of(workload: Similarity) -> Mode:
    """Return the mode that is asked for: there is always one."""
    return next(mode for mode in (kind.asked_by(workload) for kind in MODES) if mode is not None)
