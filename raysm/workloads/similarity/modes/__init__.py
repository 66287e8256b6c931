"""Modes: the k most similar rows of each row, the pairs above a threshold, or all scores.

Each mode is one subclass of ``Mode`` in its own file. To add one, write its file and a line here.
"""

from raysm.request.similarity import Similarity
from raysm.workloads.similarity.modes.full import Full
from raysm.workloads.similarity.modes.mode import Mode
from raysm.workloads.similarity.modes.threshold import Threshold
from raysm.workloads.similarity.modes.topk import TopK

MODES: list[type[Mode]] = [TopK, Threshold, Full]
"""The first mode whose ``asked_by`` accepts a request handles it."""


def mode_of(workload: Similarity) -> Mode:
    return next(mode for mode in (kind.asked_by(workload) for kind in MODES) if mode is not None)
