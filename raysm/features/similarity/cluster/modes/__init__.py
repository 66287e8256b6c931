"""Modes: the k most similar rows of each row, the pairs above a threshold, or all scores.

Each mode is one subclass of ``Mode`` in its own file. To add one, write its file and a line here.
"""

from raysm.features.similarity.cluster.modes.full import Full
from raysm.features.similarity.cluster.modes.mode import Mode
from raysm.features.similarity.cluster.modes.threshold import Threshold
from raysm.features.similarity.cluster.modes.topk import TopK
from raysm.features.similarity.request import Similarity

MODES: list[type[Mode]] = [TopK, Threshold, Full]
"""The first mode whose ``from_workload`` accepts a request handles it."""


def choose_mode(workload: Similarity) -> Mode:
    return next(
        mode for mode in (kind.from_workload(workload) for kind in MODES) if mode is not None
    )
